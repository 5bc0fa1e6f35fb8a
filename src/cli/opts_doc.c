/* SPDX-License-Identifier: MIT */
/* opts_doc.c - text made from the option table: --help and manual sections. */
#include <string.h>

#include "opts.h"

struct doc {
    FILE *f;
    int in_list, n_list; /* mdoc: a list is open; lists so far */
};

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

/* "default 40; 0 to 1000; auto, always or never", or nothing */
static void limits(const struct opt_row *row, char *buf, size_t cap)
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
    limits(row, lim, sizeof lim);
    snprintf(text, sizeof text, *lim ? "%s (%s)" : "%s", row->text, lim);
    if (n + 2 > TEXT_COLUMN)
        fprintf(f, "%s\n%*s", head, TEXT_COLUMN, "");
    else
        fprintf(f, "%-*s", TEXT_COLUMN, head);
    wrap(f, text, TEXT_COLUMN);
}

/* Calls row_fn for each option of the command, title_fn before each group; sets in their order. */
static void each(const struct cmd *cmd, struct doc *d, void (*title_fn)(const char *, struct doc *),
                 void (*row_fn)(const struct opt_row *, struct doc *))
{
    const char *title = NULL;
    char done[ARG_COUNT] = { 0 };

    for (int s = 0; s < SET_COUNT; s++) {
        if (!(cmd->sets & (1ull << s)))
            continue;
        for (int i = 0; i < ARG_COUNT; i++) {
            const struct opt_row *row = &cb_opt_table[i];
            if (!(row->sets & (1ull << s)) || done[i])
                continue;
            done[i] = 1;
            if (!title || strcmp(title, cb_opt_set_title[s]))
                title_fn(title = cb_opt_set_title[s], d);
            row_fn(row, d);
        }
    }
}

static void help_title(const char *title, struct doc *d)
{
    fprintf(d->f, "\n%s:\n", title);
}

void cb_opts_help(const struct cmd *cmd, FILE *f)
{
    struct doc d = { .f = f };

    fprintf(f, "usage: ctxbank %s [options]%s%s\n\nctxbank %s - %s\n", cmd->name,
            *cmd->operands ? " " : "", cmd->operands, cmd->name, cmd->brief);
    each(cmd, &d, help_title, help_row);
    fprintf(f, "\nMore: man ctxbank-%.*s\n", (int)strcspn(cmd->name, " "), cmd->name);
}

/* ---- manual: the OPTIONS section in mdoc ---- */

void cb_man_text(const char *text, FILE *f)
{
    for (int at = 0; *text; text++, at++) {
        if (*text == '\\') {
            fputs("\\e", f);
        } else if (*text == '-') {
            fputs("\\-", f);
        } else if (*text == ' ' && at + (int)strcspn(text + 1, " ") > 68 &&
                   !strchr(".'", text[1])) {
            fputc('\n', f);
            at = -1;
        } else {
            fputc(*text, f);
        }
    }
}

static void man_end_list(struct doc *d)
{
    if (d->in_list)
        fputs(".El\n", d->f);
    d->in_list = 0;
}

static void man_title(const char *title, struct doc *d)
{
    man_end_list(d);
    if (d->n_list++)
        fputs(".Pp\n", d->f);
    fprintf(d->f, ".Em %s\n.Bl -tag -width Ds\n", title);
    d->in_list = 1;
}

static void man_spelling(const char *spelling, const struct opt_row *row, FILE *f)
{
    fputs(" Fl ", f);
    cb_man_text(spelling + 1, f); /* Fl writes the first dash */
    if (row->unit)
        fprintf(f, " Ar %s", row->unit);
}

static void man_row(const struct opt_row *row, struct doc *d)
{
    FILE *f = d->f;
    char spelling[64], text[160];

    fputs(".It", f);
    if (row->letter) {
        snprintf(spelling, sizeof spelling, "-%c", row->letter);
        man_spelling(spelling, row, f);
        fputs(" ,", f);
    }
    snprintf(spelling, sizeof spelling, "--%s", row->name);
    man_spelling(spelling, row, f);
    for (const char *a = row->alias; a && *a; a += strspn(a, " ")) {
        const int n = (int)strcspn(a, " ");
        snprintf(spelling, sizeof spelling, "%.*s", n, a);
        fputs(" ,", f);
        man_spelling(spelling, row, f);
        a += n;
    }
    fputc('\n', f);
    cb_man_text(row->text, f);
    limits(row, text, sizeof text);
    if (*text) {
        fputs("\n(", f);
        cb_man_text(text, f);
        fputc(')', f);
    }
    fputs(".\n", f);
    if (row->env) {
        cb_opt_env_name(row, text, sizeof text);
        fprintf(f, "Environment:\n.Ev %s .\n", text);
    }
}

void cb_opts_man(const struct cmd *cmd, FILE *f)
{
    struct doc d = { .f = f };

    each(cmd, &d, man_title, man_row);
    man_end_list(&d);
}
