/* SPDX-License-Identifier: MIT */
/* schema_doc.c - reads JSON strictly by RFC 8259, without two members of one name. */
#include "schema_doc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"
#include "decimal.h"
#include "jinja/jnum.h"
#include "readers.h"

enum { BLOCK = 1 << 15, MOST_DEEP = 1000 };

struct sdoc_block {
    struct sdoc_block *next;
    size_t n, cap;
    _Alignas(16) char at[];
};

struct reader {
    struct sdoc *d;
    const char *text, *s, *end;
    int depth;
};

/* ---- memory ---- */

static void *sdoc_alloc(struct sdoc *d, size_t bytes, int *rc)
{
    struct sdoc_block *b = d->block;
    size_t cap = bytes > BLOCK / 4 ? bytes : BLOCK;

    bytes = (bytes + 15) / 16 * 16;
    cap = cap < bytes ? bytes : cap;
    *rc = CB_OK;
    if (!b || bytes > b->cap - b->n) {
        b = cb_budget_calloc(d->budget, 1, sizeof *b + cap, rc);
        if (!b)
            return NULL;
        b->cap = cap;
        b->next = d->block;
        d->block = b;
    }
    b->n += bytes;
    return b->at + b->n - bytes;
}

void cb_sdoc_free(struct sdoc *d)
{
    while (d->block) {
        struct sdoc_block *b = d->block;
        d->block = b->next;
        cb_budget_bytes(d->budget, sizeof *b + b->cap, 0);
        free(b);
    }
    free(d->val);
    cb_ids_free(&d->keys);
}

/* ---- members ---- */

struct wanted_key {
    const struct sdoc *d;
    const struct sval *up;
    const char *key;
    size_t n;
};

static int same_key(const void *ctx, int32_t id)
{
    const struct wanted_key *w = ctx;
    const struct sval *v = w->d->val[id];

    return v->up == w->up && v->key_n == w->n && !memcmp(v->key, w->key, w->n);
}

static uint64_t key_hash(const struct sdoc *d, const struct sval *up, const char *key, size_t n)
{
    return cb_siphash(&d->keys.key, key, n) ^ cb_siphash_word(&d->keys.key, (uint64_t)up->id);
}

struct sval *cb_sdoc_get(const struct sdoc *d, const struct sval *v, const char *key, size_t n)
{
    const struct wanted_key w = { d, v && v->same ? v->same : v, key, n };
    int32_t id;

    if (!v || v->kind != SVAL_OBJECT || !v->n)
        return NULL;
    id = cb_ids_look(&d->keys, key_hash(d, w.up, key, n), same_key, &w);
    return id < 0 ? NULL : d->val[id];
}

/* A member, after its key, if it has one, is set; `fresh` is 0 if there is one of that key. */
static int enter(struct sdoc *d, struct sval *up, struct sval *v, int *fresh)
{
    const struct wanted_key w = { d, up, v->key, v->key_n };
    int32_t id;

    *fresh = 1;
    v->up = up;
    if (!up)
        return CB_OK;
    if (v->key) {
        TRY(cb_budget_bytes(d->budget, 0, 4 * sizeof(struct ids_slot)));
        TRY(id = cb_ids_find(&d->keys, key_hash(d, up, v->key, v->key_n), same_key, &w, v->id));
        *fresh = id == v->id;
    }
    if (up->last)
        up->last->next = v;
    else
        up->first = v;
    up->last = v;
    up->n++;
    return CB_OK;
}

static struct sval *new_val(struct sdoc *d, enum sval_kind kind, int *rc)
{
    struct sval *v;

    *rc = cb_budget_steps(d->budget, 1);
    if (!*rc)
        *rc = cb_budget_grow(d->budget, (void **)&d->val, &d->cap_val, d->n_val + 1,
                             sizeof(struct sval *));
    v = *rc ? NULL : sdoc_alloc(d, sizeof *v, rc);
    if (!v)
        return NULL;
    *v = (struct sval){ .kind = kind, .id = (int32_t)d->n_val, .s = "" };
    d->val[d->n_val++] = v;
    return v;
}

static const char *copy(struct sdoc *d, const char *s, size_t n, int *rc)
{
    char *p = sdoc_alloc(d, n + 1, rc);

    return p ? memcpy(p, s, n) : NULL;
}

struct sval *cb_sdoc_add(struct sdoc *d, struct sval *up, const char *key, enum sval_kind kind,
                         int *rc)
{
    struct sval *v = new_val(d, kind, rc);
    int fresh;

    if (v && key) {
        v->key_n = strlen(key);
        v->key = copy(d, key, v->key_n, rc);
    }
    if (!*rc)
        *rc = enter(d, up, v, &fresh);
    return *rc ? NULL : v;
}

struct sval *cb_sdoc_link(struct sdoc *d, struct sval *up, const char *key, struct sval *v, int *rc)
{
    struct sval *out = cb_sdoc_add(d, up, key, v->kind, rc);

    if (!out)
        return NULL;
    out->s = v->s;
    out->n = v->n;
    out->first = v->first;
    out->last = v->last;
    out->same = v->same ? v->same : v;
    return out;
}

/* ---- reading ---- */

static int bad(const struct reader *p, const char *why)
{
    int line = 1, column = 1;

    for (const char *s = p->text; s < p->s; s++) {
        column = *s == '\n' ? 1 : column + 1;
        line += *s == '\n';
    }
    return cb_fail(CB_EARG, "schema: line %d, column %d: %s", line, column, why);
}

static int peek(struct reader *p)
{
    while (p->s < p->end && (*p->s == ' ' || *p->s == '\t' || *p->s == '\r' || *p->s == '\n'))
        p->s++;
    return p->s < p->end ? (unsigned char)*p->s : -1;
}

static int surrogate(struct reader *p, uint32_t *c)
{
    uint32_t low;

    if (*c < 0xD800 || *c >= 0xE000)
        return CB_OK;
    if (*c >= 0xDC00 || p->end - p->s < 6 || p->s[0] != '\\' || p->s[1] != 'u' ||
        !cb_read_hex(p->s + 2, (size_t)(p->end - p->s) - 2, 4, &low) || low < 0xDC00 ||
        low >= 0xE000)
        return bad(p, "half a surrogate pair");
    p->s += 6;
    *c = 0x10000 + ((*c - 0xD800) << 10) + (low - 0xDC00);
    return CB_OK;
}

/* One character of a string -> out[4], *n bytes */
static int string_char(struct reader *p, char *out, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *letter;
    uint32_t c;

    if (*p->s != '\\') {
        const int len = cb_utf8_len(p->s, (size_t)(p->end - p->s));
        if (!len || (unsigned char)*p->s < 0x20)
            return bad(p, len ? "a control character in a string" : "not UTF-8");
        memcpy(out, p->s, (size_t)len);
        p->s += *n = (size_t)len;
        return CB_OK;
    }
    p->s++;
    if (p->s < p->end && *p->s == 'u') {
        p->s++;
        if (!cb_read_hex(p->s, (size_t)(p->end - p->s), 4, &c))
            return bad(p, "\\u needs 4 hexadecimal digits");
        p->s += 4;
        TRY(surrogate(p, &c));
        *n = (size_t)cb_utf8_put(c, out);
        return CB_OK;
    }
    letter = p->s < p->end && *p->s ? strchr(from, *p->s) : NULL;
    if (!letter)
        return bad(p, "an unknown escape");
    *out = to[letter - from];
    *n = 1;
    p->s++;
    return CB_OK;
}

/* The string at p->s, a quote -> *out[*n], which ends in NUL */
static int string(struct reader *p, const char **out, size_t *n)
{
    const char *start = p->s++, *q = p->s;
    size_t len = 0;
    char *to;
    int rc;

    while (q < p->end && *q != '"')
        q += *q == '\\' && q + 1 < p->end ? 2 : 1;
    TRY(cb_budget_steps(p->d->budget, (size_t)(q - start) / 16));
    to = sdoc_alloc(p->d, (size_t)(q - start) + 5, &rc);
    if (!to)
        return rc;
    *out = to;
    *n = 0;
    while (p->s < p->end && *p->s != '"') {
        TRY(string_char(p, to + *n, &len));
        *n += len;
    }
    if (p->s >= p->end) {
        p->s = start;
        return bad(p, "this string has no end");
    }
    to[*n] = '\0';
    p->s++;
    return CB_OK;
}

static size_t run_of_digits(const struct reader *p, const char *s)
{
    size_t n = 0;

    while (s + n < p->end && s[n] >= '0' && s[n] <= '9')
        n++;
    return n;
}

/* A fraction of 16 digits or more was printed from a double: 0.1 as 0.10000000000000001. The
 * shortest text of the same double is what was meant. */
static const char *shortest(const char *s, char *buf, size_t cap)
{
    double x;
    size_t digits = 0;

    for (const char *q = s; *q && *q != 'e' && *q != 'E'; q++)
        digits += *q >= '0' && *q <= '9';
    if (digits < 16 || !strpbrk(s, ".eE") || !cb_jnumber(s, &x) || !isfinite(x))
        return s;
    cb_jfloat_text(x, buf, cap);
    return buf;
}

static int number(struct reader *p, struct sval *v)
{
    const char *s = p->s, *short_text;
    char buf[64];
    size_t n;
    int rc;

    s += s < p->end && *s == '-';
    n = run_of_digits(p, s);
    if (!n || (*s == '0' && n > 1))
        return bad(p, "not a JSON value");
    s += n;
    if (s < p->end && *s == '.') {
        n = run_of_digits(p, ++s);
        if (!n)
            return bad(p, "a number without digits after its point");
        s += n;
    }
    if (s < p->end && (*s | 32) == 'e') {
        s += 1 + (s + 1 < p->end && (s[1] == '-' || s[1] == '+'));
        n = run_of_digits(p, s);
        if (!n)
            return bad(p, "a number without digits in its exponent");
        s += n;
    }
    v->n = (size_t)(s - p->s);
    v->s = copy(p->d, p->s, v->n, &rc);
    p->s = s;
    if (!v->s)
        return rc;
    short_text = shortest(v->s, buf, sizeof buf);
    if (short_text == buf) {
        v->n = strlen(buf);
        v->s = copy(p->d, buf, v->n, &rc);
    }
    return rc;
}

static int value(struct reader *p, struct sval *v);

/* The members of v, an object or an array, after its bracket */
static int members(struct reader *p, struct sval *v)
{
    const char end = v->kind == SVAL_OBJECT ? '}' : ']';
    int fresh, rc, c;

    if (++p->depth > MOST_DEEP)
        return bad(p, "values are nested deeper than 1000");
    for (p->s++, c = peek(p); c != end || v->n; p->s++, c = peek(p)) {
        struct sval *m = new_val(p->d, SVAL_NULL, &rc);
        if (!m)
            return rc;
        if (end == '}') {
            if (c != '"')
                return bad(p, "a member begins with its name in quotes");
            TRY(string(p, &m->key, &m->key_n));
            if (peek(p) != ':')
                return bad(p, "':' is missing after a name");
            p->s++;
        }
        TRY(enter(p->d, v, m, &fresh));
        if (!fresh)
            return bad(p, "two members have this name");
        TRY(value(p, m));
        c = peek(p);
        if (c == end)
            break;
        if (c != ',')
            return bad(p, end == '}' ? "',' or '}' is missing" : "',' or ']' is missing");
    }
    p->s++;
    p->depth--;
    return CB_OK;
}

static int value(struct reader *p, struct sval *v)
{
    static const char *const words[] = { "null", "false", "true" };
    const int c = peek(p);

    if (c == '{' || c == '[') {
        v->kind = c == '{' ? SVAL_OBJECT : SVAL_ARRAY;
        return members(p, v);
    }
    if (c == '"') {
        v->kind = SVAL_STRING;
        return string(p, &v->s, &v->n);
    }
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(words[i]);
        if ((size_t)(p->end - p->s) >= n && !memcmp(p->s, words[i], n)) {
            v->kind = (enum sval_kind)i;
            p->s += n;
            return CB_OK;
        }
    }
    v->kind = SVAL_NUMBER;
    return number(p, v);
}

int cb_sdoc_read(struct sdoc *d, struct budget *b, const char *text, size_t len)
{
    struct reader p = { .d = d, .text = text, .s = text, .end = text + len };
    int rc;

    *d = (struct sdoc){ .budget = b };
    cb_ids_init(&d->keys);
    d->root = new_val(d, SVAL_NULL, &rc);
    if (!d->root)
        return rc;
    TRY(value(&p, d->root));
    return peek(&p) < 0 ? CB_OK : bad(&p, "more text after the value");
}

/* ---- values ---- */

static int equal_members(const struct sdoc *d, const struct sval *a, const struct sval *b)
{
    const struct sval *y = b->first;

    for (const struct sval *x = a->first; x; x = x->next) {
        if (a->kind == SVAL_OBJECT)
            y = cb_sdoc_get(d, b, x->key, x->key_n);
        if (!y || !cb_sdoc_equal(d, x, y))
            return 0;
        y = y->next;
    }
    return 1;
}

int cb_sdoc_equal(const struct sdoc *d, const struct sval *a, const struct sval *b)
{
    struct decimal x, y;

    if (a->kind != b->kind)
        return 0;
    if (a->kind == SVAL_ARRAY || a->kind == SVAL_OBJECT)
        return a->n == b->n && equal_members(d, a, b);
    if (a->n == b->n && !memcmp(a->s, b->s, a->n))
        return 1;
    return a->kind == SVAL_NUMBER && cb_decimal_read(a->s, &x) && cb_decimal_read(b->s, &y) &&
           !cb_decimal_compare(&x, &y);
}

static void write_string(const char *s, size_t n, struct buf *b)
{
    static const char from[] = "\b\f\n\r\t\"\\", to[] = "bfnrt\"\\";

    cb_buf_add(b, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const char *p = s[i] ? strchr(from, s[i]) : NULL;
        if (p)
            cb_buf_print(b, "\\%c", to[p - from]);
        else if ((unsigned char)s[i] < 0x20)
            cb_buf_print(b, "\\u%04x", (unsigned)s[i]);
        else
            cb_buf_add(b, s + i, 1);
    }
    cb_buf_add(b, "\"", 1);
}

void cb_sdoc_write(const struct sval *v, struct buf *b)
{
    static const char *const words[] = { "null", "false", "true" };
    const int object = v->kind == SVAL_OBJECT;

    if (v->kind <= SVAL_TRUE)
        cb_buf_text(b, words[v->kind]);
    else if (v->kind == SVAL_NUMBER)
        cb_buf_add(b, v->s, v->n);
    else if (v->kind == SVAL_STRING)
        write_string(v->s, v->n, b);
    else {
        cb_buf_add(b, object ? "{" : "[", 1);
        for (const struct sval *m = v->first; m; m = m->next) {
            if (object) {
                write_string(m->key, m->key_n, b);
                cb_buf_add(b, ":", 1);
            }
            cb_sdoc_write(m, b);
            if (m->next)
                cb_buf_add(b, ",", 1);
        }
        cb_buf_add(b, object ? "}" : "]", 1);
    }
}
