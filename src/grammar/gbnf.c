/* SPDX-License-Identifier: MIT */
/* gbnf.c - reads GBNF, the notation of llama.cpp: NAME ::= "text" [a-z] (a | b) x? x* x+ x{2,4}. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "base/utf8.h"
#include "readers.h"

struct gbnf {
    struct rules *r;
    const char *text, *s, *end;
    int depth;
};

/* Where p stands; columns count bytes */
static void place(const struct gbnf *g, const char *p, int *line, int *column)
{
    *line = *column = 1;
    for (const char *s = g->text; s < p; s++) {
        *column = *s == '\n' ? 1 : *column + 1;
        *line += *s == '\n';
    }
}

static int bad(const struct gbnf *g, const char *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int bad(const struct gbnf *g, const char *at, const char *fmt, ...)
{
    char why[160];
    int line, column;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    place(g, at, &line, &column);
    return cb_fail(CB_EARG, "grammar: line %d, column %d: %s", line, column, why);
}

static int at(const struct gbnf *g, char c)
{
    return g->s < g->end && *g->s == c;
}

/* Blanks and comments; line ends too if `lines` */
static void skip(struct gbnf *g, int lines)
{
    while (g->s < g->end) {
        if (*g->s == '#')
            while (g->s < g->end && *g->s != '\n')
                g->s++;
        else if (*g->s == ' ' || *g->s == '\t' || *g->s == '\r' || (lines && *g->s == '\n'))
            g->s++;
        else
            break;
    }
}

static int is_name(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_';
}

static size_t name_len(const struct gbnf *g)
{
    const char *p = g->s;

    while (p < g->end && is_name(*p))
        p++;
    return (size_t)(p - g->s);
}

/* ---- characters ---- */

static int escape(struct gbnf *g, uint32_t *c)
{
    static const char from[] = "trn\\\"[]-^", to[] = "\t\r\n\\\"[]-^";
    const char *start = g->s++, *p;
    const char kind = g->s < g->end ? *g->s++ : 0;
    const int digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;

    if (digits) {
        if (!cb_read_hex(g->s, (size_t)(g->end - g->s), digits, c))
            return bad(g, start, "\\%c needs %d hexadecimal digits", kind, digits);
        if (*c > 0x10FFFF || (*c >= 0xD800 && *c < 0xE000))
            return bad(g, start, "U+%04X is no character", (unsigned)*c);
        g->s += digits;
        return CB_OK;
    }
    p = kind ? strchr(from, kind) : NULL;
    if (!p)
        return bad(g, start, "unknown escape; \\ is written \\\\");
    *c = (uint8_t)to[p - from];
    return CB_OK;
}

static int character(struct gbnf *g, uint32_t *c)
{
    int n;

    if (at(g, '\\'))
        return escape(g, c);
    n = cb_read_char(g->s, (size_t)(g->end - g->s), c);
    if (!n)
        return bad(g, g->s, "not UTF-8");
    g->s += n;
    return CB_OK;
}

static int literal(struct gbnf *g, int *x)
{
    const char *start = g->s++;
    struct buf b = { 0 };
    char utf8[4];
    uint32_t c;
    int rc = CB_OK;

    while (!rc && g->s < g->end && *g->s != '"' && *g->s != '\n')
        if (!(rc = character(g, &c)))
            cb_buf_add(&b, utf8, (size_t)cb_utf8_put(c, utf8));
    if (!rc && !at(g, '"'))
        rc = bad(g, start, "this text has no end; a line end is written \\n");
    g->s++;
    *x = b.n ? cb_ex_text(g->r, b.s, b.n) : cb_ex_empty(g->r);
    rc = !rc && b.failed ? cb_fail(CB_ENOMEM, "out of memory: a grammar") : rc;
    cb_buf_free(&b);
    return rc;
}

static int one_range(struct gbnf *g, struct char_range *out)
{
    const char *start = g->s;

    TRY(character(g, &out->from));
    out->to = out->from;
    if (g->end - g->s > 1 && *g->s == '-' && g->s[1] != ']') {
        g->s++;
        TRY(character(g, &out->to));
    }
    return out->to < out->from ? bad(g, start, "this range runs backwards") : CB_OK;
}

/* The ranges of a class, in memory that its owner frees */
struct class
{
    struct char_range *range;
    size_t n, cap;
};

/* a-z...] -> c */
static int ranges(struct gbnf *g, const char *start, struct class *c)
{
    while (g->s < g->end && *g->s != ']' && *g->s != '\n') {
        TRY(cb_budget_steps(g->r->budget, 1));
        TRY(cb_grow(&c->range, &c->cap, c->n + 1, sizeof *c->range));
        TRY(one_range(g, &c->range[c->n]));
        c->n++;
    }
    if (!at(g, ']'))
        return bad(g, start, "this class has no end; ] in it is written \\]");
    g->s++;
    return CB_OK;
}

static int class(struct gbnf *g, int *x)
{
    const char *start = g->s++;
    const int negated = at(g, '^');
    struct class c = { 0 };
    int rc;

    g->s += negated;
    rc = ranges(g, start, &c);
    if (!rc)
        *x = cb_ex_chars(g->r, c.range, c.n, negated);
    free(c.range);
    return rc;
}

/* ---- expressions ---- */

static int choice(struct gbnf *g, int *x);

static int group(struct gbnf *g, int *x)
{
    const char *start = g->s++;

    if (++g->depth > GRAMMAR_MAX_DEPTH)
        return bad(g, start, "groups are nested deeper than %d", GRAMMAR_MAX_DEPTH);
    skip(g, 1);
    TRY(choice(g, x));
    skip(g, 1);
    if (!at(g, ')'))
        return bad(g, start, "this group has no end");
    g->s++;
    g->depth--;
    return CB_OK;
}

static int name(struct gbnf *g, int *x)
{
    const size_t n = name_len(g);
    const int rule = cb_rule_named(g->r, g->s, n);

    if (!g->r->failed && !g->r->rule[rule].at)
        g->r->rule[rule].at = g->s;
    g->s += n;
    *x = cb_ex_rule(g->r, rule);
    return CB_OK;
}

static int primary(struct gbnf *g, int *x)
{
    if (at(g, '"'))
        return literal(g, x);
    if (at(g, '['))
        return class(g, x);
    if (at(g, '('))
        return group(g, x);
    if (at(g, '.')) {
        g->s++;
        *x = cb_ex_chars(g->r, NULL, 0, 1);
        return CB_OK;
    }
    if (at(g, '<') || at(g, '!'))
        return bad(g, g->s, "tokens are not supported; write their text in quotes");
    return name(g, x);
}

/* {m} {m,} {m,n} */
static int counts(struct gbnf *g, int *min, int *max)
{
    const char *start = g->s++;
    size_t n;

    skip(g, 0);
    g->s += n = cb_read_count(g->s, (size_t)(g->end - g->s), min);
    *max = *min;
    skip(g, 0);
    if (n && at(g, ',')) {
        g->s++;
        skip(g, 0);
        n = cb_read_count(g->s, (size_t)(g->end - g->s), max);
        g->s += n;
        *max = n ? *max : -1;
        skip(g, 0);
        n = 1;
    }
    if (!n || !at(g, '}'))
        return bad(g, start, "a count is {n}, {n,} or {n,m}");
    g->s++;
    if (*min > GRAMMAR_MAX_REPEAT || *max > GRAMMAR_MAX_REPEAT)
        return bad(g, start, "a count is at most %d", GRAMMAR_MAX_REPEAT);
    return *max >= 0 && *max < *min ? bad(g, start, "this count runs backwards") : CB_OK;
}

static int postfix(struct gbnf *g, int *x)
{
    int min, max;

    for (skip(g, g->depth > 0); g->s < g->end; skip(g, g->depth > 0)) {
        const char c = *g->s;
        if (c != '?' && c != '*' && c != '+' && c != '{')
            break;
        min = c == '+';
        max = c == '?' ? 1 : -1;
        if (c == '{')
            TRY(counts(g, &min, &max));
        else
            g->s++;
        *x = cb_ex_repeat(g->r, *x, min, max);
    }
    return CB_OK;
}

static int begins_primary(const struct gbnf *g)
{
    return g->s < g->end && (is_name(*g->s) || strchr("\"[(.<!", *g->s));
}

/* 1: what follows is the next rule, not a member of this one */
static int next_rule(struct gbnf *g)
{
    const char *s = g->s;
    int is;

    g->s += name_len(g);
    is = g->s > s;
    skip(g, 0);
    is = is && g->end - g->s >= 3 && !memcmp(g->s, "::=", 3);
    g->s = s;
    return is;
}

static int sequence(struct gbnf *g, int *x)
{
    struct ex_list l = { 0 };
    int one;

    for (skip(g, g->depth > 0); begins_primary(g); skip(g, g->depth > 0)) {
        TRY(primary(g, &one));
        TRY(postfix(g, &one));
        cb_ex_add(g->r, &l, one);
    }
    *x = cb_ex_seq(g->r, &l);
    return CB_OK;
}

/* A line that begins with | continues with the rule above. */
static int another(struct gbnf *g)
{
    const char *s = g->s;

    skip(g, 1);
    if (at(g, '|'))
        return 1;
    g->s = s;
    return 0;
}

static int choice(struct gbnf *g, int *x)
{
    struct ex_list l = { 0 };
    int one;

    TRY(sequence(g, &one));
    cb_ex_add(g->r, &l, one);
    while (another(g)) {
        g->s++;
        skip(g, 1);
        if (next_rule(g))
            return bad(g, g->s, "an alternative is missing in front of this rule");
        TRY(sequence(g, &one));
        cb_ex_add(g->r, &l, one);
    }
    *x = cb_ex_alt(g->r, &l);
    return CB_OK;
}

/* ---- rules ---- */

static int rule(struct gbnf *g)
{
    const char *start = g->s;
    const size_t n = name_len(g);
    int id, x;

    if (!n)
        return bad(g, start, "a rule is NAME ::= ..., and names have letters, digits, - and _");
    id = cb_rule_named(g->r, start, n);
    g->s += n;
    skip(g, 0);
    if (g->end - g->s < 3 || memcmp(g->s, "::=", 3))
        return bad(g, g->s, "::= is missing after '%.*s'", n < 60 ? (int)n : 60, start);
    if (!g->r->failed && g->r->rule[id].expr >= 0)
        return bad(g, start, "'%.*s' is defined twice", n < 60 ? (int)n : 60, start);
    g->s += 3;
    skip(g, 1);
    if (next_rule(g))
        return bad(g, g->s, "the rule in front of this one is empty; \"\" is the empty text");
    TRY(choice(g, &x));
    skip(g, 0);
    if (g->s < g->end && *g->s != '\n')
        return bad(g, g->s, "'%c' is out of place", isprint((unsigned char)*g->s) ? *g->s : '?');
    if (!g->r->failed)
        g->r->rule[id].expr = x;
    return cb_rules_check(g->r);
}

static int defined(const struct gbnf *g)
{
    for (size_t i = 0; i < g->r->n_rule; i++) {
        const struct named_rule *x = &g->r->rule[i];
        if (x->expr < 0)
            return bad(g, x->at, "there is no rule '%.*s'",
                       x->name_len < 60 ? (int)x->name_len : 60, g->r->text.s + x->name);
    }
    return CB_OK;
}

int cb_read_gbnf_rules(const char *text, size_t len, struct rules *r)
{
    struct gbnf g = { .r = r, .text = text, .s = text, .end = text + len };

    for (skip(&g, 1); g.s < g.end; skip(&g, 1))
        TRY(rule(&g));
    return r->n_rule ? defined(&g) : cb_fail(CB_EARG, "grammar: it is empty");
}

int cb_read_gbnf(const char *text, size_t len, struct rules *r, int *root)
{
    TRY(cb_read_gbnf_rules(text, len, r));
    *root = cb_rule_named(r, "root", 4);
    TRY(cb_rules_check(r));
    return r->rule[*root].expr < 0
               ? cb_fail(CB_EARG, "grammar: there is no rule 'root', with which texts begin")
               : CB_OK;
}
