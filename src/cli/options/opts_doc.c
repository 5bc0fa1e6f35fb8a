/* SPDX-License-Identifier: MIT */
/* opts_doc.c - text made from the option table: --help, and what manual sections share with it. */
#include <string.h>

#include "opts_doc.h"

enum { TEXT_COLUMN = 28, LAST_COLUMN = 79 };

/* ---- --help ---- */

/* Writes words from column `at` on, wrapped, the next lines indented to TEXT_COLUMN. */
static void wrap(FILE *f, const char *text, int at)
{
    while (*text) {
        const int n = (int)strcspn(text, " ");
        if (at > TEXT_COLUMN && at + 1 + n > LAST_COLUMN) {
            fprintf(f, "\n%*s", TEXT_COLUMN, "");
            at = TEXT_COLUMN;
        } else if (at > TEXT_COLUMN) {
            fputc(' ', f);
            at++;
        }
        fprintf(f, "%.*s", n, text);
        at += n;
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', f);
}

void cb_opts_limits(const struct opt_row *row, char *buf, size_t cap)
{
    size_t n = 0;

    buf[0] = 0;
    if (row->def)
        n += (size_t)snprintf(buf + n, cap - n, "default %s", row->def);
    if (row->choices && n < cap) {
        n += (size_t)snprintf(buf + n, cap - n, "%sone of ", n ? "; " : "");
        for (const char *c = row->choices; *c && n + 2 < cap; c++) {
            if (*c == ' ')
                buf[n++] = ',';
            buf[n++] = *c;
        }
        buf[n] = 0;
    }
}

static void help_row(const struct opt_row *row, struct doc *d)
{
    FILE *f = d->f;
    char head[96], lim[160], text[700];
    int n = row->letter ? snprintf(head, sizeof head, "  -%c, --%s", row->letter, row->name)
                        : snprintf(head, sizeof head, "      --%s", row->name);

    if (row->alias)
        n += snprintf(head + n, sizeof head - (size_t)n, ", %.*s", (int)strcspn(row->alias, " "),
                      row->alias);
    if (row->unit)
        n += snprintf(head + n, sizeof head - (size_t)n, " %s", row->unit);
    cb_opts_limits(row, lim, sizeof lim);
    snprintf(text, sizeof text, *lim ? "%s (%s)" : "%s", row->text, lim);
    if (n + 2 > TEXT_COLUMN)
        fprintf(f, "%s\n%*s", head, TEXT_COLUMN, "");
    else
        fprintf(f, "%-*s", TEXT_COLUMN, head);
    wrap(f, text, TEXT_COLUMN);
}

void cb_opts_each(const struct pick *p, struct doc *d, void (*title_fn)(const char *, struct doc *),
                  void (*row_fn)(const struct opt_row *, struct doc *))
{
    char done[ARG_COUNT] = { 0 };

    for (int s = 0; s < SET_COUNT; s++) {
        const char *title = NULL;
        for (int t = s; t < SET_COUNT; t++) {
            if (strcmp(cb_opt_set_title[s], cb_opt_set_title[t]))
                continue;
            for (int i = 0; i < ARG_COUNT; i++) {
                const struct opt_row *row = &cb_opt_table[i];
                if (!(row->sets >> t & 1) || done[i] || !p->takes(p, row, t))
                    continue;
                done[i] = 1;
                if (!title)
                    title_fn(title = cb_opt_set_title[s], d);
                row_fn(row, d);
            }
        }
    }
}

int cb_opts_any(const struct pick *p, const struct opt_row *row, int set)
{
    (void)row;
    return (int)(p->cmd->sets >> set & 1);
}

static void help_title(const char *title, struct doc *d)
{
    fprintf(d->f, "\n%s:\n", title);
}

void cb_opts_help(const struct cmd *cmd, FILE *f)
{
    const struct pick all = { cb_opts_any, cmd, NULL };
    struct doc d = { .f = f };

    fprintf(f, "usage: ctxbank %s [options]%s%s\n\nctxbank %s - %s\n", cmd->name,
            *cmd->operands ? " " : "", cmd->operands, cmd->name, cmd->brief);
    cb_opts_each(&all, &d, help_title, help_row);
    fputs("\nMore: man ctxbank-", f);
    for (const char *c = cmd->name; *c; c++)
        fputc(*c == ' ' ? '-' : *c, f);
    fputc('\n', f);
}
