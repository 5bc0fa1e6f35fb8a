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

/* What most calls need, in the order in which --help shows it. */
static const enum opt_id most_used[] = {
    ARG_MODEL,    ARG_MODELS,       ARG_PROMPT,   ARG_FILE,     ARG_DOCUMENT, ARG_CHAT,
    ARG_SYSTEM,   ARG_PREDICT,      ARG_CTX,      ARG_POLICY,   ARG_TEMP,     ARG_SEED,
    ARG_STOP,     ARG_JSON_SCHEMA,  ARG_BANK,     ARG_BANK_DIR, ARG_HOST,     ARG_PORT,
    ARG_PARALLEL, ARG_API_KEY_FILE, ARG_THREADS,  ARG_DEVICE,   ARG_DRY_RUN,  ARG_JSON,
    ARG_VERBOSE,  ARG_QUIET,        ARG_HELP_ALL,
};
enum { FEW = 40 }; /* options that --help shows all at once */

static int n_options(const struct cmd *cmd)
{
    int n = 0;

    for (int i = 0; i < ARG_COUNT; i++)
        n += (cmd->sets & cb_opt_table[i].sets) != 0;
    return n;
}

static void help_most_used(const struct cmd *cmd, struct doc *d)
{
    fputs("\nOptions that are used most:\n", d->f);
    for (size_t i = 0; i < sizeof most_used / sizeof *most_used; i++)
        if (cmd->sets & cb_opt_table[most_used[i]].sets)
            help_row(&cb_opt_table[most_used[i]], d);
}

void cb_opts_help(const struct cmd *cmd, int all, FILE *f)
{
    const struct pick any = { cb_opts_any, cmd, NULL };
    const int n = n_options(cmd);
    struct doc d = { .f = f };

    fprintf(f, "usage: ctxbank %s [options]%s%s\n\nctxbank %s - %s\n", cmd->name,
            *cmd->operands ? " " : "", cmd->operands, cmd->name, cmd->brief);
    if (cmd->example)
        fprintf(f, "\nExample:\n  ctxbank %s %s\n", cmd->name, cmd->example);
    if (all || n <= FEW)
        cb_opts_each(&any, &d, help_title, help_row);
    else
        help_most_used(cmd, &d);
    fputs("\nMore: ", f);
    if (!all && n > FEW)
        fprintf(f, "all %d options: 'ctxbank %s --help=all'; ", n, cmd->name);
    fputs("man ctxbank-", f);
    for (const char *c = cmd->name; *c; c++)
        fputc(*c == ' ' ? '-' : *c, f);
    fputc('\n', f);
}
