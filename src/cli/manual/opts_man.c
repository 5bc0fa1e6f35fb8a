/* SPDX-License-Identifier: MIT */
/* opts_man.c - OPTIONS sections of manual pages, in mdoc, and which page describes an option. */
#include <string.h>

#include "base/words.h"
#include "cli/cmd.h"
#include "cli/options/opts_doc.h"
#include "opts_man.h"

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
    const char *alias = row->alias, *word;
    size_t n;
    char spelling[64], text[160];

    fputs(".It", f);
    if (row->letter) {
        snprintf(spelling, sizeof spelling, "-%c", row->letter);
        man_spelling(spelling, row, f);
        fputs(" ,", f);
    }
    snprintf(spelling, sizeof spelling, "--%s", row->name);
    man_spelling(spelling, row, f);
    while ((word = cb_word(&alias, ' ', &n))) {
        snprintf(spelling, sizeof spelling, "%.*s", (int)n, word);
        fputs(" ,", f);
        man_spelling(spelling, row, f);
    }
    fputc('\n', f);
    cb_man_text(row->text, f);
    cb_opts_limits(row, text, sizeof text);
    if (*text) {
        fputs("\n(", f);
        cb_man_text(text, f);
        fputc(')', f);
    }
    fputs(".\n", f);
    if (row->env) {
        cb_opt_env_name(row->name, text, sizeof text);
        fprintf(f, "Environment:\n.Ev %s .\n", text);
    }
    if (row->old) {
        fputs("The former name\n.Fl \\-", f);
        cb_man_text(row->old, f);
        fputs("\nis deprecated.\n", f);
    }
}

/* ---- which page describes an option ---- */

/* Is the command one of the group ("eval")? */
static int in_group(const struct cmd *cmd, const char *group)
{
    const size_t n = strlen(group);
    return !strncmp(cmd->name, group, n) && cmd->name[n] == ' ';
}

/* How many commands take one of the sets, and how many of them are outside the group */
static int takers(uint64_t sets, const char *group, int *outside)
{
    const struct cmd *const *cmds = cb_cmd_all;
    int n = 0;

    *outside = 0;
    for (int i = 0; cmds[i]; i++) {
        if (cmds[i]->hidden || !(cmds[i]->sets & sets))
            continue;
        n++;
        *outside += !group || !in_group(cmds[i], group);
    }
    return n;
}

static int own(const struct pick *p, const struct opt_row *row, int set)
{
    int outside;
    return cb_opts_any(p, row, set) && takers(row->sets, NULL, &outside) == 1;
}

/* Several commands take it, all of the group. */
static int of_group(const struct pick *p, const struct opt_row *row, int set)
{
    int outside;
    return (!p->cmd || cb_opts_any(p, row, set)) && p->group &&
           takers(row->sets, p->group, &outside) > 1 && !outside;
}

/* A set that several commands have; -1: none, as where each has the option beside its own ones */
static int common_set(uint64_t sets)
{
    int outside;

    for (int s = 0; s < SET_COUNT; s++)
        if ((sets >> s & 1) && takers(1ull << s, NULL, &outside) > 1)
            return s;
    return -1;
}

/* Commands of no one group take it. Its title is that of a set that several commands have. */
static int shared(const struct pick *p, const struct opt_row *row, int set)
{
    const struct cmd *const *cmds = cb_cmd_all;
    const int common = common_set(row->sets);
    int outside;

    if (p->cmd ? !cb_opts_any(p, row, set) : common >= 0 && takers(1ull << set, NULL, &outside) < 2)
        return 0;
    for (int i = 0; cmds[i]; i++) {
        char group[32];
        snprintf(group, sizeof group, "%.*s", (int)strcspn(cmds[i]->name, " "), cmds[i]->name);
        if (cmds[i]->name[strlen(group)] && takers(row->sets, group, &outside) && !outside)
            return 0;
    }
    return takers(row->sets, NULL, &outside) > 1;
}

/* ---- names of options that another page describes ---- */

static void name_title(const char *title, struct doc *d)
{
    fprintf(d->f, "%s.It Em %s\n", d->n_list++ ? "\n" : "", title);
    d->in_list = 0;
}

static void name_row(const struct opt_row *row, struct doc *d)
{
    if (d->in_list++)
        fputs(" ,\n", d->f);
    fputs(".Fl \\-", d->f);
    cb_man_text(row->name, d->f);
    if (row->letter)
        fprintf(d->f, " Pq Fl %c", row->letter);
}

/* begun: the section has text already */
static int elsewhere(const struct pick *p, const char *page, const char *section, int begun,
                     FILE *f)
{
    struct doc d = { .f = f };
    int n = 0;

    for (int i = 0; i < ARG_COUNT; i++)
        for (int s = 0; s < SET_COUNT; s++)
            n += (cb_opt_table[i].sets >> s & 1) && p->takes(p, &cb_opt_table[i], s);
    if (!n)
        return begun;
    fprintf(f, "%sDescribed in\n.Xr %s %s :\n.Bl -tag -width Ds\n", begun ? ".Pp\n" : "", page,
            section);
    cb_opts_each(p, &d, name_title, name_row);
    fputs("\n.El\n", f);
    return 1;
}

void cb_opts_man(const struct cmd *cmd, FILE *f)
{
    char group[32], page[48];
    const struct pick mine = { own, cmd, NULL }, group_s = { of_group, cmd, group },
                      others = { shared, cmd, NULL };
    struct doc d = { .f = f };

    snprintf(group, sizeof group, "%.*s", (int)strcspn(cmd->name, " "), cmd->name);
    snprintf(page, sizeof page, "ctxbank-%s", group);
    cb_opts_each(&mine, &d, man_title, man_row);
    man_end_list(&d);
    elsewhere(&others, "ctxbank-options", "7", elsewhere(&group_s, page, "1", d.n_list, f), f);
}

static void man_heading(const char *title, struct doc *d)
{
    man_end_list(d);
    fprintf(d->f, ".Ss %s\n.Bl -tag -width Ds\n", title);
    d->in_list = 1;
}

void cb_opts_man_shared(const char *group, FILE *f)
{
    const struct pick all = { group ? of_group : shared, NULL, group };
    struct doc d = { .f = f };

    cb_opts_each(&all, &d, man_heading, man_row);
    man_end_list(&d);
}
