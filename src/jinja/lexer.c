/* SPDX-License-Identifier: MIT */
/* lexer.c - a template's source as tokens. */
#include "lexer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macos.h"
#include "base/utf8.h"
#include "jnum.h"

struct lexer {
    struct jrun *r;
    const char *s; /* [n] source, lines end in \n */
    size_t n, at;
    int line;
    int line_start; /* 1: the previous token ended a line */
    struct token *t;
    size_t n_t, cap_t;
};

static int push(struct lexer *x, enum token_kind kind, int op, struct jv v)
{
    if (x->n_t == x->cap_t) {
        const size_t cap = 2 * x->cap_t + 64;
        struct token *t = cb_jalloc(x->r, cap, sizeof *t);
        if (!t)
            return CB_ENOMEM;
        if (x->n_t)
            memcpy(t, x->t, x->n_t * sizeof *t);
        x->t = t;
        x->cap_t = cap;
    }
    x->t[x->n_t++] = (struct token){ kind, op, x->line, v };
    return CB_OK;
}

static int bad(struct lexer *x, const char *why)
{
    x->r->line = x->line;
    return cb_jfail(x->r, "%s", why);
}

/* Goes on to `to`, counting lines. */
static void advance(struct lexer *x, size_t to)
{
    for (; x->at < to; x->at++)
        x->line += x->s[x->at] == '\n';
}

static int is_at(const struct lexer *x, size_t at, const char *text)
{
    const size_t n = strlen(text);

    return x->n - at >= n && memcmp(x->s + at, text, n) == 0;
}

static size_t skip_blanks(const struct lexer *x, size_t at)
{
    const struct jstr s = { x->s, NULL, x->n };
    size_t n;

    while (at < x->n && cb_jspace(cb_jcode(&s, at, &n)))
        at += n;
    return at;
}

/* ---- text between the tags ---- */

/* Text [from, to) in front of a tag. sign: '-' strips all blanks before the tag; without '+' those
 * between a line's start and a tag {% or {# go. */
static int put_data(struct lexer *x, size_t from, size_t to, char sign, int own_line)
{
    const struct jstr s = { x->s + from, NULL, to - from };
    struct jstr text = s;

    if (sign == '-') {
        text = cb_jstrip(s, NULL, 0, 1);
    } else if (sign != '+' && own_line) {
        const char *nl = s.n ? memrchr(s.s, '\n', s.n) : NULL;
        const size_t l = nl ? (size_t)(nl - s.s) + 1 : 0;
        const struct jstr rest = { s.s + l, NULL, s.n - l };
        if ((nl || x->line_start) && !cb_jstrip(rest, NULL, 1, 1).n)
            text.n = l;
    }
    TRY(text.n ? push(x, T_DATA, 0, cb_jstr_of(text)) : CB_OK);
    advance(x, to);
    return CB_OK;
}

/* After the end of a tag: '-' strips all blanks that follow, a tag {% or {# without a sign the end
 * of its line. */
static void end_tag(struct lexer *x, size_t to, char sign, int own_line)
{
    if (sign == '-')
        to = skip_blanks(x, to);
    else if (sign != '+' && own_line && to < x->n && x->s[to] == '\n')
        to++;
    advance(x, to);
    x->line_start = to > 0 && x->s[to - 1] == '\n';
}

/* {% raw %} or {% endraw %} at `at`: where it ends, 0 = it is not there; *open, *close: its signs
 */
static size_t raw_tag(const struct lexer *x, size_t at, const char *name, char *open, char *close)
{
    *open = *close = 0;
    if (!is_at(x, at, "{%"))
        return 0;
    at += 2;
    if (at < x->n && (x->s[at] == '-' || x->s[at] == '+'))
        *open = x->s[at++];
    at = skip_blanks(x, at);
    if (!is_at(x, at, name))
        return 0;
    at = skip_blanks(x, at + strlen(name));
    if (at < x->n && (x->s[at] == '-' || x->s[at] == '+'))
        *close = x->s[at++];
    return is_at(x, at, "%}") ? at + 2 : 0;
}

static int raw(struct lexer *x, size_t from, size_t body, char close)
{
    char open2, close2;

    (void)from;
    x->line_start = 0;
    end_tag(x, body, close == '-' ? '-' : '+', 1);
    for (size_t at = x->at; at < x->n; at++) {
        const size_t end = raw_tag(x, at, "endraw", &open2, &close2);
        if (!end)
            continue;
        TRY(put_data(x, x->at, at, open2, 1));
        end_tag(x, end, close2, 1);
        return CB_OK;
    }
    return bad(x, "{% raw %} without {% endraw %}");
}

static int comment(struct lexer *x, size_t at)
{
    const char *end = memmem(x->s + at, x->n - at, "#}", 2);
    size_t to;

    if (!end)
        return bad(x, "a comment without its end");
    to = (size_t)(end - x->s);
    end_tag(x, to + 2, to > at && (end[-1] == '-' || end[-1] == '+') ? end[-1] : 0, 1);
    return CB_OK;
}

/* ---- within a tag ---- */

static int hex(const char *s, const char *end, int digits, uint32_t *c)
{
    *c = 0;
    for (int i = 0; i < digits; i++, s++) {
        static const char all[] = "0123456789abcdef0123456789ABCDEF";
        const char *d = s < end && *s ? strchr(all, *s) : NULL;
        if (!d || *c >> 24)
            return 0;
        *c = *c << 4 | (uint32_t)((d - all) & 15);
    }
    return *c < 0x110000 && (*c < 0xD800 || *c > 0xDFFF);
}

/* An escape of Python's after a backslash at s: its text to buf; returns the bytes read, 0 = none
 * known */
static size_t unescape(const char *s, const char *end, char *buf, size_t *n)
{
    static const char letter[] = "ntr\\'\"abfv", plain[] = "\n\t\r\\'\"\a\b\f\v";
    const char *l = *s ? strchr(letter, *s) : NULL;
    const int digits = *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0;
    uint32_t c = 0;
    size_t k = 0;

    *n = 1;
    if (l) {
        *buf = plain[l - letter];
        return 1;
    }
    if (*s == '\n') {
        *n = 0;
        return 1;
    }
    if (digits) {
        if (!hex(s + 1, end, digits, &c))
            return 0;
        *n = (size_t)cb_utf8_put(c, buf);
        return 1 + (size_t)digits;
    }
    while (k < 3 && s + k < end && s[k] >= '0' && s[k] <= '7')
        c = c << 3 | (uint32_t)(s[k++] - '0');
    if (k)
        *n = (size_t)cb_utf8_put(c, buf);
    return k;
}

static int lex_string(struct lexer *x)
{
    const char quote = x->s[x->at], *s = x->s + x->at + 1, *end = s;
    size_t n = 0;
    char *text;

    while (end < x->s + x->n && *end != quote)
        end += *end == '\\' && end + 1 < x->s + x->n ? 2 : 1;
    if (end >= x->s + x->n)
        return bad(x, "a text without its closing quote");
    text = cb_jalloc(x->r, (size_t)(end - s) + 4, 1);
    if (!text)
        return CB_ENOMEM;
    while (s < end) {
        size_t len, k = *s == '\\' ? unescape(s + 1, end, text + n, &len) : 0;
        if (k) {
            n += len;
            s += 1 + k;
            continue;
        }
        if (*s == '\\') /* an unknown escape stays */
            text[n++] = *s++;
        text[n++] = *s++;
    }
    TRY(push(x, T_CONST, 0, cb_jstr_of((struct jstr){ text, NULL, n })));
    advance(x, (size_t)(end + 1 - x->s));
    return CB_OK;
}

static int is_name(unsigned char c, int first)
{
    return ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || c >= 0x80 ||
           (!first && c >= '0' && c <= '9');
}

static int is_digit(const struct lexer *x, size_t at)
{
    return at < x->n && x->s[at] >= '0' && x->s[at] <= '9';
}

enum { MOST_DIGITS = 50 };

/* A number without its '_'. Characters that have no room are counted, and not stored. */
struct number_text {
    char s[MOST_DIGITS + 1];
    size_t n;
};

static void put(struct number_text *t, char c)
{
    if (t->n < MOST_DIGITS)
        t->s[t->n] = c;
    t->n++;
}

/* Decimal digits and '_' between them, copied to t; returns the end. */
static size_t digits(const struct lexer *x, size_t at, struct number_text *t)
{
    while (is_digit(x, at) || (at < x->n && x->s[at] == '_' && is_digit(x, at + 1))) {
        if (x->s[at] != '_')
            put(t, x->s[at]);
        at++;
    }
    return at;
}

static int number_value(struct lexer *x, const struct number_text *t, int real, struct jv *v)
{
    char *end;

    if (t->n > MOST_DIGITS)
        return bad(x, "a number of too many digits");
    if (real) {
        v->kind = J_FLOAT;
        return cb_jnumber(t->s, &v->f) ? CB_OK : bad(x, "not a number");
    }
    errno = 0;
    *v = cb_jint(strtoll(t->s, &end, 10));
    return errno ? bad(x, "a number that is too large") : CB_OK;
}

static int lex_number(struct lexer *x)
{
    struct number_text t = { .n = 0 };
    size_t at = digits(x, x->at, &t), k;
    struct jv v;
    int real = 0;

    if (at < x->n && x->s[at] == '.' && is_digit(x, at + 1)) {
        real = 1;
        put(&t, '.');
        at = digits(x, at + 1, &t);
    }
    k = at + 1 + (at + 1 < x->n && (x->s[at + 1] == '-' || x->s[at + 1] == '+'));
    if (at < x->n && (x->s[at] | 32) == 'e' && is_digit(x, k)) {
        real = 1;
        put(&t, 'e');
        if (k == at + 2)
            put(&t, x->s[at + 1]);
        at = digits(x, k, &t);
    }
    TRY(number_value(x, &t, real, &v));
    advance(x, at);
    return push(x, T_CONST, 0, v);
}

static int lex_op(struct lexer *x, int *depth)
{
    static const char *const two[] = { "**p", "//d", "===", "!=!", "<=l", ">=g" };
    const char c = x->s[x->at];

    for (int i = 0; i < 6; i++) {
        if (x->n - x->at >= 2 && !memcmp(x->s + x->at, two[i], 2)) {
            x->at += 2;
            return push(x, T_OP, two[i][2], cb_jint(0));
        }
    }
    if (!c || !strchr("+-*/%~[](){}<>=.:|,;", c))
        return bad(x, "an unexpected character within a tag");
    *depth += strchr("([{", c) ? 1 : strchr(")]}", c) ? -1 : 0;
    x->at++;
    return push(x, T_OP, c == '=' ? 'a' : c, cb_jint(0));
}

/* The end of the tag here: 0 = none, else its bytes; braces may be open within a print tag */
static size_t tag_end(const struct lexer *x, const char *close, int depth, char *sign)
{
    const char c = x->s[x->at];

    *sign = 0;
    if (depth > 0)
        return 0;
    if (is_at(x, x->at, close))
        return 2;
    if ((c == '-' || c == '+') && is_at(x, x->at + 1, close)) {
        *sign = c;
        return 3;
    }
    return 0;
}

static int lex_tag(struct lexer *x, int block)
{
    const char *close = block ? "%}" : "}}";
    int depth = 0;

    TRY(push(x, block ? T_BLOCK : T_PRINT, 0, cb_jint(0)));
    for (;;) {
        char sign;
        size_t n;
        advance(x, skip_blanks(x, x->at));
        if (x->at >= x->n)
            return bad(x, block ? "{% without %}" : "{{ without }}");
        n = tag_end(x, close, depth, &sign);
        if (n) {
            TRY(push(x, block ? T_BLOCK_END : T_PRINT_END, 0, cb_jint(0)));
            end_tag(x, x->at + n, sign, block);
            return CB_OK;
        }
        if (x->s[x->at] == '"' || x->s[x->at] == '\'') {
            TRY(lex_string(x));
        } else if (is_digit(x, x->at)) {
            TRY(lex_number(x));
        } else if (is_name((unsigned char)x->s[x->at], 1)) {
            const size_t from = x->at;
            while (x->at < x->n && is_name((unsigned char)x->s[x->at], 0))
                x->at++;
            const struct jstr name = { x->s + from, NULL, x->at - from };
            TRY(push(x, T_NAME, 0, cb_jstr_of(name)));
        } else {
            TRY(lex_op(x, &depth));
        }
    }
}

/* ---- the whole ---- */

/* Where the next tag begins, n if there is none */
static size_t next_tag(const struct lexer *x, size_t at)
{
    for (; at + 1 < x->n; at++)
        if (x->s[at] == '{' && strchr("{%#", x->s[at + 1]) && x->s[at + 1])
            return at;
    return x->n;
}

static int lex_one(struct lexer *x)
{
    const size_t at = next_tag(x, x->at);
    char sign = 0, open, close;
    size_t body;
    int kind;

    if (at == x->n)
        return put_data(x, x->at, at, '+', 0);
    kind = x->s[at + 1];
    body = raw_tag(x, at, "raw", &open, &close);
    if (at + 2 < x->n && (x->s[at + 2] == '-' || x->s[at + 2] == '+'))
        sign = x->s[at + 2];
    TRY(put_data(x, x->at, at, sign, kind != '{'));
    if (body)
        return raw(x, at, body, close);
    advance(x, at + 2 + (sign != 0));
    return kind == '#' ? comment(x, x->at) : lex_tag(x, kind == '%');
}

/* A copy whose lines end in \n, without the last line's end */
static int own_copy(struct lexer *x, const char *src, size_t n)
{
    char *s = cb_jalloc(x->r, n + 1, 1);

    if (!s)
        return CB_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (src[i] == '\r' && i + 1 < n && src[i + 1] == '\n')
            continue;
        s[x->n++] = src[i] == '\r' ? '\n' : src[i];
    }
    if (x->n && s[x->n - 1] == '\n')
        x->n--;
    x->s = s;
    return CB_OK;
}

int cb_jlex(struct jrun *r, const char *src, size_t n, struct token **out)
{
    struct lexer x = { .r = r, .line = 1, .line_start = 1 };

    TRY(own_copy(&x, src, n));
    while (x.at < x.n) {
        TRY(cb_jstep(r, 0));
        TRY(lex_one(&x));
    }
    TRY(push(&x, T_END, 0, cb_jint(0)));
    *out = x.t;
    return CB_OK;
}
