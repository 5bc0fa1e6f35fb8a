/* SPDX-License-Identifier: MIT */
/* regex.c - reads regular expressions: a|b (ab) [^a-z] \d \w \s \p{L} . ? * + {2,4} ^ $ (?=a)
 * (?!a). They fit a whole text; in a JSON schema they fit a part of a string unless ^ and $ say
 * otherwise.
 */
#include "regex.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "letters.h"
#include "re_expr.h"
#include "readers.h"

enum { MOST_CLASS = 10000, MOST_STATES = 20000 };

struct regex {
    struct re *re;
    const char *text, *s, *end;
    const char *what; /* for messages */
    int depth;
    int any_case; /* letters of ASCII stand for both cases */
};

static int bad(const struct regex *x, int status, const char *at, const char *why)
{
    return cb_fail(status, "%s: column %d: %s", x->what, (int)(at - x->text) + 1, why);
}

static int at(const struct regex *x, char c)
{
    return x->s < x->end && *x->s == c;
}

static int ahead(const struct regex *x, const char *s)
{
    const size_t n = strlen(s);

    return (size_t)(x->end - x->s) >= n && !memcmp(x->s, s, n);
}

/* ---- classes ---- */

struct class
{
    struct char_range *range;
    size_t n, cap;
};

static int add_range(struct regex *x, struct class *c, uint32_t from, uint32_t to)
{
    TRY(cb_budget_grow(x->re->budget, (void **)&c->range, &c->cap, c->n + 1, sizeof *c->range));
    c->range[c->n++] = (struct char_range){ from, to };
    return CB_OK;
}

/* What from..to has of the letters first..first + 25, in the other case */
static int add_other_case(struct regex *x, struct class *c, uint32_t from, uint32_t to,
                          uint32_t first, int32_t shift)
{
    const uint32_t low = from > first ? from : first, last = first + 25;
    const uint32_t high = to < last ? to : last;

    return low > high ? CB_OK
                      : add_range(x, c, (uint32_t)((int32_t)low + shift),
                                  (uint32_t)((int32_t)high + shift));
}

static int add(struct regex *x, struct class *c, uint32_t from, uint32_t to)
{
    TRY(add_range(x, c, from, to));
    if (!x->any_case)
        return CB_OK;
    TRY(add_other_case(x, c, from, to, 'a', 'A' - 'a'));
    return add_other_case(x, c, from, to, 'A', 'a' - 'A');
}

static void drop(struct regex *x, struct class *c)
{
    cb_budget_bytes(x->re->budget, c->cap * sizeof *c->range, 0);
    free(c->range);
}

static const struct {
    char letter;
    struct char_range range[11]; /* ascending */
    size_t n;
} shorthands[] = {
    { 'd', { { '0', '9' } }, 1 },
    { 'w', { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } }, 4 },
    { 's',
      { { '\t', '\r' },
        { ' ', ' ' },
        { 0xA0, 0xA0 },
        { 0x1680, 0x1680 },
        { 0x2000, 0x200A },
        { 0x2028, 0x2029 },
        { 0x202F, 0x202F },
        { 0x205F, 0x205F },
        { 0x3000, 0x3000 },
        { 0xFEFF, 0xFEFF } },
      10 },
};

/* \d \w \s, or the others for \D \W \S. 1: it was one of them */
static int shorthand(struct regex *x, struct class *c, char letter)
{
    for (size_t i = 0; i < sizeof shorthands / sizeof *shorthands; i++) {
        const struct char_range *r = shorthands[i].range;
        uint32_t from = 0;
        if (tolower((unsigned char)letter) != shorthands[i].letter)
            continue;
        for (size_t k = 0; k < shorthands[i].n; k++) {
            if (islower((unsigned char)letter))
                TRY(add(x, c, r[k].from, r[k].to));
            else
                TRY(add(x, c, from, r[k].from - 1));
            from = r[k].to + 1;
        }
        if (isupper((unsigned char)letter))
            TRY(add(x, c, from, 0x10FFFF));
        return 1;
    }
    return 0;
}

/* \p{L} and \P{L}, whose p is at x->s */
static int property(struct regex *x, struct class *c)
{
    const char *start = x->s - 1, *name = x->s + 2;
    const int others = *x->s == 'P';
    const char *end = memchr(x->s, '}', (size_t)(x->end - x->s));
    uint32_t from = 0;
    uint64_t kinds;
    int inside = 0;

    if (x->end - x->s < 3 || x->s[1] != '{' || !end)
        return bad(x, CB_EARG, start, "a property is \\p{NAME}");
    kinds = cb_letter_kinds(name, (size_t)(end - name));
    if (!kinds)
        return bad(x, CB_EUNSUPPORTED, start, "this property of characters is not known");
    TRY(cb_budget_steps(x->re->budget, 0x110000 / 16));
    for (uint32_t i = 0; i <= 0x110000; i++) {
        const int is = i <= 0x10FFFF && cb_letter_is(i, kinds) != others;
        if (is && !inside)
            from = i;
        if (!is && inside)
            TRY(add(x, c, from, i - 1));
        inside = is;
    }
    x->s = end + 1;
    return 1;
}

/* Digits of an escape, {} around any number of them or exactly n */
static int code(struct regex *x, int n, const char *start, uint32_t *c)
{
    if (n == 4 && at(x, '{')) {
        const char *end = memchr(x->s, '}', (size_t)(x->end - x->s));
        const int len = end ? (int)(end - x->s) - 1 : 0;
        x->s++;
        if (len < 1 || len > 6 || !cb_read_hex(x->s, (size_t)len, len, c))
            return bad(x, CB_EARG, start, "this escape is no character");
        n = len + 1;
    } else if (!cb_read_hex(x->s, (size_t)(x->end - x->s), n, c)) {
        return bad(x, CB_EARG, start, "this escape is no character");
    }
    x->s += n;
    if (*c > 0x10FFFF || (*c >= 0xD800 && *c < 0xE000))
        return bad(x, CB_EUNSUPPORTED, start, "this escape is no character, but half of one");
    return CB_OK;
}

/* The character of an escape; x->s is after the backslash */
static int escape(struct regex *x, uint32_t *c)
{
    static const char from[] = "trnfv0", to[] = "\t\r\n\f\v";
    const char *start = x->s - 1, *p;
    const char kind = x->s < x->end ? *x->s++ : 0;

    if (kind == 'x' || kind == 'u')
        return code(x, kind == 'x' ? 2 : 4, start, c);
    if (kind == 'c' && x->s < x->end && isalpha((unsigned char)*x->s)) {
        *c = (uint32_t)(*x->s++ & 31);
        return CB_OK;
    }
    p = kind ? strchr(from, kind) : NULL;
    if (p)
        *c = (uint8_t)to[p - from];
    else if (kind && (ispunct((unsigned char)kind) || kind == ' '))
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
    if (x->s[1] == 'p' || x->s[1] == 'P') {
        x->s++;
        return property(x, c);
    }
    TRY(rc = shorthand(x, c, x->s[1]));
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
    if (ahead(x, "\\b")) {
        x->s += 2;
        return add(x, c, '\b', '\b');
    }
    TRY(character(x, &from));
    to = from;
    if (x->end - x->s > 1 && *x->s == '-' && x->s[1] != ']') {
        const char *dash = x->s++;
        if (x->end - x->s > 1 && *x->s == '\\' && strchr("dDwWsSpP", x->s[1]))
            x->s = dash; /* in front of a shorthand it stands for itself */
        else
            TRY(character(x, &to));
    }
    return to < from ? bad(x, CB_EARG, start, "this range runs backwards") : add(x, c, from, to);
}

static int bracket(struct regex *x, re_id *e)
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
        *e = cb_re_chars(x->re, c.range, c.n, negated);
    drop(x, &c);
    return rc;
}

static re_id any(struct regex *x)
{
    struct char_range line[] = { { '\n', '\n' }, { '\r', '\r' }, { 0x2028, 0x2029 } };
    return cb_re_chars(x->re, line, 3, 1);
}

/* ---- expressions ---- */

static int choice(struct regex *x, re_id *e);

/* What follows (? up to the expression; *look: 1: a look ahead, -1: a negative one */
static int group_kind(struct regex *x, const char *start, int *look)
{
    *look = ahead(x, "?=") ? 1 : ahead(x, "?!") ? -1 : 0;
    if (*look || ahead(x, "?:")) {
        x->s += 2;
        return CB_OK;
    }
    if ((ahead(x, "?<=") || ahead(x, "?<!")) && x->re->rough) {
        x->s += 3;
        *look = 1;
        return CB_OK;
    }
    if (ahead(x, "?<=") || ahead(x, "?<!"))
        return bad(x, CB_EUNSUPPORTED, start, "look-behind is not supported");
    if (ahead(x, "?<") || ahead(x, "?P<")) { /* a name */
        const char *end = memchr(x->s, '>', (size_t)(x->end - x->s));
        if (!end)
            return bad(x, CB_EARG, start, "the name of this group has no end");
        x->s = end + 1;
        return CB_OK;
    }
    return bad(x, CB_EUNSUPPORTED, start,
               "of the groups with (? only (?: (?= (?! names, and (?i) in front are known");
}

static int group(struct regex *x, re_id *e)
{
    const char *start = x->s++;
    int look = 0;

    if (at(x, '?'))
        TRY(group_kind(x, start, &look));
    if (++x->depth > GRAMMAR_MAX_DEPTH)
        return bad(x, CB_EUNSUPPORTED, start, "groups are nested too deeply");
    TRY(choice(x, e));
    if (!at(x, ')'))
        return bad(x, CB_EARG, start, "this group has no end");
    x->s++;
    x->depth--;
    if (look && x->re->rough) {
        *e = x->re->empty;
        x->re->n_left++;
    } else if (look) {
        *e = cb_re_look(x->re, *e, look < 0);
    }
    return CB_OK;
}

/* A character, or a shorthand */
static int single(struct regex *x, re_id *e)
{
    struct class c = { 0 };
    uint32_t one;
    int rc = read_shorthand(x, &c);

    if (rc == 0) {
        rc = character(x, &one);
        if (!rc)
            rc = add(x, &c, one, one);
    }
    if (rc >= 0)
        *e = cb_re_chars(x->re, c.range, c.n, 0);
    drop(x, &c);
    return rc < 0 ? rc : CB_OK;
}

static int is_count(const struct regex *x)
{
    return x->end - x->s > 1 && *x->s == '{' && isdigit((unsigned char)x->s[1]);
}

static int atom(struct regex *x, re_id *e)
{
    const char next = x->end - x->s > 1 ? x->s[1] : 0;

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
        *e = cb_re_mark(x->re, *x->s++ == '^' ? RE_START : RE_END);
        return CB_OK;
    case '*':
    case '+':
    case '?':
        return bad(x, CB_EARG, x->s, "there is nothing to repeat");
    case '{':
        if (is_count(x))
            return bad(x, CB_EARG, x->s, "there is nothing to repeat");
        return single(x, e);
    case '\\':
        if (next == 'A' || next == 'z' || next == 'Z') {
            x->s += 2;
            *e = cb_re_mark(x->re, next == 'A' ? RE_START : RE_END);
            return CB_OK;
        }
        if (next == 'b' || next == 'B')
            return bad(x, CB_EUNSUPPORTED, x->s, "this escape is not known: a border of words");
        if (next && strchr("123456789k", next))
            return bad(x, CB_EUNSUPPORTED, x->s, "this escape is not known: a back reference");
        return single(x, e);
    default:
        return single(x, e);
    }
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

static int postfix(struct regex *x, re_id *e)
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
    if (x->s < x->end && (strchr("*+", *x->s) || is_count(x)))
        return bad(x, CB_EUNSUPPORTED, x->s, "a count of a count");
    *e = cb_re_repeat(x->re, *e, min, max);
    return CB_OK;
}

/* Expressions that grow */
struct list {
    re_id *e;
    size_t n, cap;
};

static int push(struct regex *x, struct list *l, re_id e)
{
    TRY(cb_budget_grow(x->re->budget, (void **)&l->e, &l->cap, l->n + 1, sizeof e));
    l->e[l->n++] = e;
    return CB_OK;
}

static void free_list(struct regex *x, struct list *l)
{
    cb_budget_bytes(x->re->budget, l->cap * sizeof *l->e, 0);
    free(l->e);
}

static int sequence(struct regex *x, re_id *e)
{
    struct list l = { 0 };
    re_id one;
    int rc = CB_OK;

    while (!rc && x->s < x->end && *x->s != '|' && *x->s != ')') {
        rc = atom(x, &one);
        if (!rc)
            rc = postfix(x, &one);
        if (!rc)
            rc = x->re->failed ? x->re->failed : push(x, &l, one);
    }
    for (*e = x->re->empty; !rc && l.n > 0; l.n--)
        *e = cb_re_cat(x->re, l.e[l.n - 1], *e);
    free_list(x, &l);
    return rc;
}

static int choice(struct regex *x, re_id *e)
{
    struct list l = { 0 };
    int rc = sequence(x, e);

    if (!rc && !at(x, '|'))
        return CB_OK;
    while (!rc) {
        rc = push(x, &l, *e);
        if (rc || !at(x, '|'))
            break;
        x->s++;
        rc = sequence(x, e);
    }
    if (!rc)
        *e = cb_re_alt(x->re, l.e, l.n);
    free_list(x, &l);
    return rc;
}

int cb_regex(struct re *re, const char *text, size_t len, const char *what, int is_part, re_id *out)
{
    struct regex x = { .re = re, .text = text, .s = text, .end = text + len, .what = what };
    re_id e;
    int rc;

    if (ahead(&x, "(?i)")) { /* Python's way to say it */
        x.s += 4;
        x.any_case = 1;
    }
    TRY(choice(&x, &e));
    if (x.s < x.end)
        return bad(&x, CB_EARG, x.s, "this ) has no beginning");
    TRY(re->failed);
    rc = cb_re_anchored(re, e, is_part, out);
    return rc ? cb_fail_in(rc, what) : CB_OK;
}

static int read_all(struct re *x, const char *text, size_t len, struct rules *r, int *root)
{
    re_id id;
    int e;

    TRY(cb_regex(x, text, len, "regex", 0, &id));
    TRY(cb_re_expr(x, id, cb_ex_chars, MOST_STATES, r, &e));
    *root = cb_rule_new(r);
    TRY(cb_rules_check(r));
    r->rule[*root].expr = e;
    return CB_OK;
}

int cb_read_regex(const char *text, size_t len, struct rules *r, int *root)
{
    struct re x;
    int rc;

    cb_re_open(&x, r->budget);
    rc = read_all(&x, text, len, r, root);
    cb_re_close(&x);
    return rc;
}
