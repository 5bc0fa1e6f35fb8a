/* SPDX-License-Identifier: MIT */
/* opts.c - parses the command line and the environment by the option table. */
#include "opts.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "base/number.h"
#include "base/suggest.h"
#include "base/words.h"
#include "opts_foreign.h"

int cb_usage(const char *fmt, ...)
{
    char text[800];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return cb_fail(CB_USAGE, "%s", text);
}

/* ---- names ---- */

static int takes_row(const struct cmd *cmd, const struct opt_row *row)
{
    return (cmd->sets & row->sets) != 0;
}

static int is_long(const char *name, const char *typed, size_t n)
{
    return name && n > 2 && typed[1] == '-' && strlen(name) == n - 2 &&
           !strncmp(name, typed + 2, n - 2);
}

/* The option spelled typed[n], dashes included; -1 if this command has none such. */
static int find_long(const struct cmd *cmd, const char *typed, size_t n)
{
    for (int i = 0; i < ARG_COUNT; i++) {
        const struct opt_row *row = &cb_opt_table[i];
        if (!takes_row(cmd, row))
            continue;
        if (is_long(row->name, typed, n) || is_long(row->old, typed, n) ||
            cb_word_index(row->alias, ' ', typed, n) >= 0)
            return i;
    }
    return -1;
}

static int find_letter(const struct cmd *cmd, char c)
{
    for (int i = 0; i < ARG_COUNT; i++)
        if (cb_opt_table[i].letter == c && takes_row(cmd, &cb_opt_table[i]))
            return i;
    return -1;
}

int cb_opt_find(const struct cmd *cmd, const char *typed, size_t n)
{
    const int id = find_long(cmd, typed, n);

    return id < 0 && n == 2 ? find_letter(cmd, typed[1]) : id;
}

static const char *name_at(const void *ctx, int i)
{
    const struct cmd *cmd = ctx;

    for (int id = 0; id < ARG_COUNT; id++)
        if (takes_row(cmd, &cb_opt_table[id]) && i-- == 0)
            return cb_opt_table[id].name;
    return NULL;
}

static int unknown(const struct cmd *cmd, const char *typed, size_t n)
{
    const size_t dashes = n > 2 && typed[1] == '-' ? 2 : 1;
    const char *near = n > 2 ? cb_name_nearest(typed + dashes, n - dashes, name_at, cmd) : NULL;

    if (near)
        return cb_usage("%.*s: no such option of '%s'; did you mean --%s?", (int)n, typed,
                        cmd->name, near);
    return cb_usage("%.*s: no such option; 'ctxbank %s --help=all' lists them", (int)n, typed,
                    cmd->name);
}

/* ---- values ---- */

static int out_of_range(const struct opt_row *row, const char *what, const char *text)
{
    char min[32], max[32];

    return cb_usage("%s: %s is not between %s and %s", what, text, cb_number_text(row->min, min),
                    cb_number_text(row->max, max));
}

static int parse_int(const struct opt_row *row, const char *what, const char *text, int64_t *out)
{
    char *end;
    int shift = 0;
    long long v;

    errno = 0;
    v = strtoll(text, &end, 10);
    if (end == text || isspace((unsigned char)*text))
        return cb_usage("%s: '%s' is not a whole number", what, text);
    if (*end && strchr("kKmMgG", *end)) {
        shift = tolower((unsigned char)*end) == 'k'   ? 10
                : tolower((unsigned char)*end) == 'm' ? 20
                                                      : 30;
        end++;
    }
    if (*end)
        return cb_usage("%s: '%s' is not a whole number", what, text);
    if (errno == ERANGE || v > (INT64_MAX >> shift) || v < (INT64_MIN >> shift))
        return out_of_range(row, what, text);
    v = (long long)((uint64_t)v << shift);
    if ((double)v < row->min || (double)v > row->max)
        return out_of_range(row, what, text);
    *out = v;
    return CB_OK;
}

static int parse_real(const struct opt_row *row, const char *what, const char *text, double *out)
{
    char *end;
    const double v = cb_number(text, &end);

    if (end == text || *end || isspace((unsigned char)*text) || !isfinite(v))
        return cb_usage("%s: '%s' is not a number", what, text);
    if (v < row->min || v > row->max)
        return out_of_range(row, what, text);
    *out = v;
    return CB_OK;
}

static int parse_ints(const struct opt_row *row, const char *what, const char *text,
                      struct arg_value *v)
{
    char item[32];

    for (;;) {
        const size_t len = strcspn(text, ",");
        TRY(cb_grow_by_one(&v->list, v->n, sizeof *v->list));
        if (len >= sizeof item)
            return cb_usage("%s: '%s' is not a whole number", what, text);
        snprintf(item, sizeof item, "%.*s", (int)len, text);
        TRY(parse_int(row, what, item, &v->list[v->n]));
        v->n++;
        if (!text[len])
            return CB_OK;
        text += len + 1;
    }
}

static int parse_value(const struct opt_row *row, const char *what, const char *text,
                       struct arg_value *v)
{
    switch (row->takes) {
    case TAKES_NOTHING:
        v->num = 1;
        return CB_OK;
    case TAKES_INT:
        return parse_int(row, what, text, &v->num);
    case TAKES_REAL:
        return parse_real(row, what, text, &v->real);
    case TAKES_INTS:
        return parse_ints(row, what, text, v);
    case TAKES_CHOICE:
        if (cb_word_index(row->choices, ' ', text, strlen(text)) < 0)
            return cb_usage("%s: '%s' is not one of: %s", what, text, row->choices);
        break;
    case TAKES_FILE:
    case TAKES_NEW_FILE: /* as of a variable of the shell that is not set */
        if (!*text)
            return cb_usage("%s: the name of the %s is empty", what,
                            strcmp(row->unit, "FOLDER") ? "file" : "folder");
        break;
    case TAKES_TEXT:
    case TAKES_SCALED:
        break;
    }
    TRY(cb_grow_by_one(&v->text, v->n, sizeof *v->text));
    v->text[v->n++] = text;
    return CB_OK;
}

static int note_order(struct opts *o, int id, const char *text)
{
    TRY(cb_grow_by_one(&o->given, o->n_given, sizeof *o->given));
    o->given[o->n_given++] = (struct given){ id, text };
    return CB_OK;
}

/* Sets a value from the command line or the environment; the first one replaces the default. */
static int give(struct opts *o, int id, const char *what, const char *text)
{
    struct arg_value *v = &o->v[id];

    if (text)
        TRY(note_order(o, id, text));
    if (!v->set)
        v->n = 0;
    v->set = 1;
    return parse_value(&cb_opt_table[id], what, text, v);
}

void cb_opt_env_name(const char *name, char *buf, size_t cap)
{
    snprintf(buf, cap, "CTXBANK_%s", name);
    for (char *c = buf; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

/* The value of the option's variable, whose name goes to what; an empty one counts as none. */
static const char *variable(const char *name, char *what, size_t cap)
{
    const char *text;

    cb_opt_env_name(name, what, cap);
    text = getenv(what);
    return text && *text ? text : NULL;
}

static int from_environment(struct opts *o)
{
    char what[64];

    for (int i = 0; i < ARG_COUNT; i++) {
        const struct opt_row *row = &cb_opt_table[i];
        const char *text;
        if (!row->env || o->v[i].set || !takes_row(o->cmd, row))
            continue;
        text = variable(row->name, what, sizeof what);
        if (!text && row->old && (text = variable(row->old, what, sizeof what)))
            o->v[i].by_old = 2;
        if (text)
            TRY(give(o, i, what, text));
    }
    return CB_OK;
}

static int defaults(struct opts *o)
{
    for (int i = 0; i < ARG_COUNT; i++) {
        const struct opt_row *row = &cb_opt_table[i];
        if (row->def && takes_row(o->cmd, row))
            TRY(parse_value(row, row->name, row->def, &o->v[i]));
    }
    return CB_OK;
}

/* ---- the command line ---- */

struct line {
    int argc, i;
    char **argv;
};

static int is_number(const char *text)
{
    char *end;

    cb_number(text, &end);
    return *text && !*end;
}

/* A file and its number: FILE:NUMBER, or the next argument is the number. */
static int give_scaled(struct opts *o, struct line *l, int id, const char *what, char *file)
{
    char *colon = strrchr(file, ':');
    const char *number = colon && is_number(colon + 1) ? colon + 1 : NULL;
    double unused;

    if (number)
        *colon = '\0';
    else if (l->i + 1 < l->argc)
        number = l->argv[++l->i];
    else
        return cb_usage("%s: needs a file and a number (%s)", what, cb_opt_table[id].unit);
    TRY(parse_real(&cb_opt_table[id], what, number, &unused));
    TRY(give(o, id, what, file));
    return give(o, id, what, number);
}

/* The value of the option typed[n]: after '=', or the next argument. */
static int long_option(struct opts *o, struct line *l, int id, char *typed, size_t n)
{
    const struct opt_row *row = &cb_opt_table[id];
    char what[64], *value;

    snprintf(what, sizeof what, "%.*s", (int)n, typed);
    if (is_long(row->old, typed, n))
        o->v[id].by_old = 1;
    if (row->takes == TAKES_NOTHING) {
        if (typed[n])
            return cb_usage("%s: takes no value", what);
        return give(o, id, what, NULL);
    }
    if (!typed[n] && l->i + 1 >= l->argc)
        return cb_usage("%s: needs a value (%s)", what, row->unit);
    value = typed[n] ? typed + n + 1 : l->argv[++l->i];
    return row->takes == TAKES_SCALED ? give_scaled(o, l, id, what, value)
                                      : give(o, id, what, value);
}

/* A value may follow a letter at once only if it is a number: else "-np 4" would be -n with "p". */
static int is_attached(const char *text)
{
    return *text == '=' || isdigit((unsigned char)*text) ||
           ((*text == '-' || *text == '.') && isdigit((unsigned char)text[1]));
}

/* "-c4096", "-c 4096", "-c=4096", "-vq" */
static int short_options(struct opts *o, struct line *l, const char *typed)
{
    for (const char *c = typed + 1; *c; c++) {
        const int id = find_letter(o->cmd, *c);
        const char what[3] = { '-', *c, 0 };
        if (id < 0)
            return c == typed + 1 ? unknown(o->cmd, typed, strcspn(typed, "="))
                                  : unknown(o->cmd, what, 2);
        if (cb_opt_table[id].takes == TAKES_NOTHING) {
            TRY(give(o, id, what, NULL));
            continue;
        }
        if (c[1] && !is_attached(c + 1))
            return unknown(o->cmd, typed, strcspn(typed, "="));
        if (c[1])
            return give(o, id, what, c[1] == '=' ? c + 2 : c + 1);
        if (l->i + 1 >= l->argc)
            return cb_usage("%s: needs a value (%s)", what, cb_opt_table[id].unit);
        return give(o, id, what, l->argv[++l->i]);
    }
    return CB_OK;
}

static int operand(struct opts *o, const char *text)
{
    if (o->n_operand == o->cmd->max_operands)
        return cb_usage("'%s': %s", text,
                        o->n_operand ? "one argument too many"
                                     : "not an option; give text with -p, files with -f");
    TRY(cb_grow_by_one(&o->operand, o->n_operand, sizeof *o->operand));
    o->operand[o->n_operand++] = text;
    return CB_OK;
}

/* What is not spelled as a long option or an alias */
static int short_or_foreign(struct opts *o, struct line *l, const char *a, size_t n)
{
    const char *next = l->i + 1 < l->argc ? l->argv[l->i + 1] : NULL;
    const int plain = find_letter(o->cmd, a[1]) >= 0 && (!a[2] || is_attached(a + 2));
    const char *instead = NULL;
    int used = 0, known = plain ? 0 : cb_opts_foreign(a, n, next, &used, &instead);

    l->i += used;
    if (instead)
        return cb_usage("%.*s: not an option here; %s", (int)n, a, instead);
    if (known)
        return CB_OK;
    return a[1] == '-' ? unknown(o->cmd, a, n) : short_options(o, l, a);
}

static int arguments(struct opts *o, struct line *l)
{
    int only_operands = 0;

    for (; l->i < l->argc; l->i++) {
        char *a = l->argv[l->i];
        const size_t n = strcspn(a, "=");
        int id;
        if (only_operands || a[0] != '-' || !a[1]) {
            TRY(operand(o, a));
        } else if (!strcmp(a, "--help=all")) {
            TRY(give(o, ARG_HELP_ALL, a, NULL));
        } else if (!strcmp(a, "--")) {
            only_operands = 1;
        } else if ((id = find_long(o->cmd, a, n)) >= 0) {
            TRY(long_option(o, l, id, a, n));
        } else {
            TRY(short_or_foreign(o, l, a, n));
        }
    }
    return CB_OK;
}

int cb_opt_typed(const struct opts *o, enum opt_id id)
{
    int n = 0;

    for (int i = 0; i < o->n_typed; i++)
        n += o->given[i].id == (int)id;
    return n;
}

int cb_opts_parse(const struct cmd *cmd, int argc, char **argv, struct opts *out)
{
    struct line l = { argc, 0, argv };

    *out = (struct opts){ .cmd = cmd };
    TRY(defaults(out));
    TRY(arguments(out, &l));
    out->n_typed = out->n_given;
    if (cb_opt_flag(out, ARG_HELP) || cb_opt_flag(out, ARG_HELP_ALL) ||
        cb_opt_flag(out, ARG_VERSION))
        return CB_OK;
    if (out->n_operand < cmd->min_operands)
        return cb_usage("%s: needs %s", cmd->name, cmd->operands);
    if (cb_opt_typed(out, ARG_POLICY) > 1)
        return cb_usage("--policy: given %d times; bench and eval compare several",
                        cb_opt_typed(out, ARG_POLICY));
    return from_environment(out);
}

void cb_opts_free(struct opts *o)
{
    for (int i = 0; i < ARG_COUNT; i++) {
        free(o->v[i].text);
        free(o->v[i].list);
    }
    free(o->operand);
    free(o->given);
}

/* ---- reading them ---- */

static const struct arg_value *value(const struct opts *o, enum opt_id id)
{
    assert(takes_row(o->cmd, &cb_opt_table[id]) || !o->v[id].set);
    return &o->v[id];
}

int cb_opt_set(const struct opts *o, enum opt_id id)
{
    return value(o, id)->set;
}

int cb_opt_flag(const struct opts *o, enum opt_id id)
{
    return value(o, id)->num != 0;
}

int64_t cb_opt_int64(const struct opts *o, enum opt_id id)
{
    return value(o, id)->num;
}

int cb_opt_int(const struct opts *o, enum opt_id id)
{
    assert(cb_opt_table[id].max <= INT32_MAX);
    return (int)value(o, id)->num;
}

double cb_opt_real(const struct opts *o, enum opt_id id)
{
    return value(o, id)->real;
}

const char *cb_opt_text(const struct opts *o, enum opt_id id)
{
    const struct arg_value *v = value(o, id);
    return v->n ? v->text[v->n - 1] : NULL;
}

const char *const *cb_opt_texts(const struct opts *o, enum opt_id id, int *n)
{
    *n = value(o, id)->n;
    return value(o, id)->text;
}

const int64_t *cb_opt_ints(const struct opts *o, enum opt_id id, int *n)
{
    *n = value(o, id)->n;
    return value(o, id)->list;
}

int cb_opt_is(const struct opts *o, enum opt_id id, const char *choice)
{
    const char *text = cb_opt_text(o, id);
    return text && !strcmp(text, choice);
}
