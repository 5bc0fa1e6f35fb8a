/* SPDX-License-Identifier: MIT */
/* regex.c - reads regular expressions: a|b (ab) [^a-z] \d \w \s . ? * + {2,4} ^ $. They fit a whole
 * text; in a JSON schema they fit a part of a string unless ^ and $ say otherwise. */
#include "regex.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "readers.h"

enum { MOST_CLASS = 10000 };

struct regex {
    struct rules *r;
    const char *text, *s, *end;
    const char *what; /* for messages */
    regex_chars_fn chars;
    int is_part; /* 1: without ^ or $, anything may stand in front or behind */
    int depth;
};

static int bad(const struct regex *x, int status, const char *at, const char *why)
{
    return cb_fail(status, "%s: column %d: %s", x->what, (int)(at - x->text) + 1, why);
}

static int at(const struct regex *x, char c)
{
    return x->s < x->end && *x->s == c;
}

/* ---- classes ---- */

struct class
{
    struct char_range *range;
    size_t n;
};

static int add(struct class *c, uint32_t from, uint32_t to)
{
    struct char_range *q = cb_realloc(c->range, c->n + 1, sizeof *q);

    if (!q)
        return CB_ENOMEM;
    c->range = q;
    c->range[c->n++] = (struct char_range){ from, to };
    return CB_OK;
}

static const struct {
    char letter;
    struct char_range range[4];
    size_t n;
} shorthands[] = {
    { 'd', { { '0', '9' } }, 1 },
    { 'w', { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } }, 4 },
    { 's', { { '\t', '\r' }, { ' ', ' ' }, { 0xA0, 0xA0 }, { 0xFEFF, 0xFEFF } }, 4 },
};

/* \d \w \s, or the others for \D \W \S. 1: it was one of them */
static int shorthand(struct class *c, char letter)
{
    for (size_t i = 0; i < sizeof shorthands / sizeof *shorthands; i++) {
        const struct char_range *r = shorthands[i].range;
        uint32_t from = 0;
        if (tolower((unsigned char)letter) != shorthands[i].letter)
            continue;
        for (size_t k = 0; k < shorthands[i].n; k++) {
            if (islower((unsigned char)letter))
                TRY(add(c, r[k].from, r[k].to));
            else
                TRY(add(c, from, r[k].from - 1));
            from = r[k].to + 1;
        }
        if (isupper((unsigned char)letter))
            TRY(add(c, from, 0x10FFFF));
        return 1;
    }
    return 0;
}

/* The character of an escape; x->s is behind the backslash */
static int escape(struct regex *x, uint32_t *c)
{
    static const char from[] = "trnfv0", to[] = "\t\r\n\f\v";
    const char *start = x->s - 1, *p;
    const char kind = x->s < x->end ? *x->s++ : 0;
    const int digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 0;

    if (digits) {
        if (!cb_read_hex(x->s, (size_t)(x->end - x->s), digits, c) || (*c >= 0xD800 && *c < 0xE000))
            return bad(x, CB_EARG, start, "this escape is no character");
        x->s += digits;
        return CB_OK;
    }
    p = kind ? strchr(from, kind) : NULL;
    if (p)
        *c = (uint8_t)to[p - from];
    else if (kind && ispunct((unsigned char)kind))
        *c = (uint8_t)kind;
    else
        return bad(x, kind ? CB_EUNSUPPORTED : CB_EARG, start, "this escape is not known");
    return CB_OK;
}

static int character(struct regex *x, uint32_t *c)
{
    int n;

    if (at(x, '\\')) {
        x->s++;
        return escape(x, c);
    }
    n = cb_read_char(x->s, (size_t)(x->end - x->s), c);
    if (!n)
        return bad(x, CB_EARG, x->s, "not UTF-8");
    x->s += n;
    return CB_OK;
}

/* 1: a shorthand was read, and is no end of a range */
static int read_shorthand(struct regex *x, struct class *c)
{
    int rc;

    if (x->end - x->s < 2 || *x->s != '\\')
        return 0;
    TRY(rc = shorthand(c, x->s[1]));
    x->s += rc ? 2 : 0;
    return rc;
}

static int member(struct regex *x, struct class *c)
{
    const char *start = x->s;
    uint32_t from, to;
    int rc;

    TRY(rc = read_shorthand(x, c));
    if (rc)
        return CB_OK;
    if (at(x, '[') && x->end - x->s > 1 && (x->s[1] == ':' || x->s[1] == '.' || x->s[1] == '='))
        return bad(x, CB_EUNSUPPORTED, start, "named classes are not known");
    if (x->end - x->s > 1 && *x->s == '\\' && x->s[1] == 'b') {
        x->s += 2;
        return add(c, '\b', '\b');
    }
    TRY(character(x, &from));
    to = from;
    if (x->end - x->s > 1 && *x->s == '-' && x->s[1] != ']') {
        x->s++;
        TRY(character(x, &to));
    }
    return to < from ? bad(x, CB_EARG, start, "this range runs backwards") : add(c, from, to);
}

static int bracket(struct regex *x, int *e)
{
    const char *start = x->s++;
    const int negated = at(x, '^');
    struct class c = { 0 };
    int rc = CB_OK;

    x->s += negated;
    while (!rc && x->s < x->end && *x->s != ']')
        rc = c.n > MOST_CLASS ? bad(x, CB_EUNSUPPORTED, start, "this class is too long")
                              : member(x, &c);
    if (!rc && !at(x, ']'))
        rc = bad(x, CB_EARG, start, "this class has no end");
    x->s++;
    if (!rc)
        *e = x->chars(x->r, c.range, c.n, negated);
    free(c.range);
    return rc;
}

static int any(struct regex *x)
{
    struct char_range line[] = { { '\n', '\n' }, { '\r', '\r' } };
    return x->chars(x->r, line, 2, 1);
}

static int anything(struct regex *x)
{
    return cb_ex_repeat(x->r, x->chars(x->r, NULL, 0, 1), 0, -1);
}

/* ---- expressions ---- */

static int choice(struct regex *x, int *e);

static int group(struct regex *x, int *e)
{
    const char *start = x->s++;

    if (at(x, '?')) {
        if (x->end - x->s < 2 || x->s[1] != ':')
            return bad(x, CB_EUNSUPPORTED, start,
                       "of the groups with (? only (?: is known; there is no looking around");
        x->s += 2;
    }
    if (++x->depth > GRAMMAR_MAX_DEPTH)
        return bad(x, CB_EUNSUPPORTED, start, "groups are nested too deeply");
    TRY(choice(x, e));
    if (!at(x, ')'))
        return bad(x, CB_EARG, start, "this group has no end");
    x->s++;
    x->depth--;
    return CB_OK;
}

static int atom(struct regex *x, int *e)
{
    struct class c = { 0 };
    uint32_t code;
    int rc;

    switch (*x->s) {
    case '(':
        return group(x, e);
    case '[':
        return bracket(x, e);
    case '.':
        x->s++;
        *e = any(x);
        return CB_OK;
    case '^':
    case '$':
        return bad(x, CB_EUNSUPPORTED, x->s, "^ and $ are known at the ends of the whole only");
    case '*':
    case '+':
    case '?':
    case '{':
        return bad(x, CB_EARG, x->s, "there is nothing to repeat");
    case '\\':
        if (x->end - x->s > 1 && strchr("bBAzZ123456789kpP", x->s[1]))
            return bad(x, CB_EUNSUPPORTED, x->s, "this escape is not known");
        break;
    default:
        break;
    }
    rc = read_shorthand(x, &c);
    if (rc == 0)
        rc = character(x, &code);
    if (!rc)
        rc = add(&c, code, code);
    if (rc >= 0)
        *e = x->chars(x->r, c.range, c.n, 0);
    free(c.range);
    return rc < 0 ? rc : CB_OK;
}

/* {m} {m,} {m,n} */
static int counts(struct regex *x, int *min, int *max)
{
    const char *start = x->s++;
    size_t n = cb_read_count(x->s, (size_t)(x->end - x->s), min);

    x->s += n;
    *max = *min;
    if (n && at(x, ',')) {
        size_t m;
        x->s++;
        m = cb_read_count(x->s, (size_t)(x->end - x->s), max);
        x->s += m;
        *max = m ? *max : -1;
    }
    if (!n || !at(x, '}'))
        return bad(x, CB_EARG, start, "a count is {n}, {n,} or {n,m}");
    x->s++;
    if (*min > GRAMMAR_MAX_REPEAT || *max > GRAMMAR_MAX_REPEAT)
        return bad(x, CB_EUNSUPPORTED, start, "this count is too large");
    return *max >= 0 && *max < *min ? bad(x, CB_EARG, start, "this count runs backwards") : CB_OK;
}

static int postfix(struct regex *x, int *e)
{
    int min, max;

    if (x->s == x->end || !strchr("?*+{", *x->s))
        return CB_OK;
    min = *x->s == '+';
    max = *x->s == '?' ? 1 : -1;
    if (*x->s == '{')
        TRY(counts(x, &min, &max));
    else
        x->s++;
    if (at(x, '?')) /* the shortest first: the same texts */
        x->s++;
    if (x->s < x->end && strchr("*+{", *x->s))
        return bad(x, CB_EUNSUPPORTED, x->s, "a count of a count");
    *e = cb_ex_repeat(x->r, *e, min, max);
    return CB_OK;
}

static int last_dollar(const struct regex *x)
{
    return at(x, '$') && !x->depth && (x->s + 1 == x->end || x->s[1] == '|');
}

static int sequence(struct regex *x, int *e)
{
    struct ex_list l = { 0 };
    const int starts = !x->depth && at(x, '^');
    int one, ends;

    x->s += starts;
    if (x->is_part && !x->depth && !starts)
        cb_ex_add(x->r, &l, anything(x));
    while (x->s < x->end && *x->s != '|' && *x->s != ')' && !last_dollar(x)) {
        TRY(atom(x, &one));
        TRY(postfix(x, &one));
        cb_ex_add(x->r, &l, one);
    }
    ends = last_dollar(x);
    x->s += ends;
    if (x->is_part && !x->depth && !ends)
        cb_ex_add(x->r, &l, anything(x));
    *e = cb_ex_seq(x->r, &l);
    return CB_OK;
}

static int choice(struct regex *x, int *e)
{
    struct ex_list l = { 0 };
    int one;

    TRY(sequence(x, &one));
    cb_ex_add(x->r, &l, one);
    while (at(x, '|')) {
        x->s++;
        TRY(sequence(x, &one));
        cb_ex_add(x->r, &l, one);
    }
    *e = cb_ex_alt(x->r, &l);
    return CB_OK;
}

int cb_regex_expr(const char *text, size_t len, const char *what, int is_part, regex_chars_fn chars,
                  struct rules *r, int *e)
{
    struct regex x = { r, text, text, text + len, what, chars, is_part, 0 };

    TRY(choice(&x, e));
    return x.s < x.end ? bad(&x, CB_EARG, x.s, "this ) has no beginning") : CB_OK;
}

int cb_read_regex(const char *text, size_t len, struct rules *r, int *root)
{
    int e;

    TRY(cb_regex_expr(text, len, "regex", 0, cb_ex_chars, r, &e));
    *root = cb_rule_new(r);
    TRY(cb_rules_check(r));
    r->rule[*root].expr = e;
    return CB_OK;
}
