/* SPDX-License-Identifier: MIT */
/* json_read.c - JSON text to values, strictly by RFC 8259. */
#include "json_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "jnum.h"

struct reader {
    struct jrun *r;
    const char *s;
    size_t n, at;
};

static int bad(const struct reader *p, const char *why)
{
    return cb_fail(CB_EARG, "chat-template-kwargs: byte %zu of the JSON text: %s", p->at, why);
}

static void blanks(struct reader *p)
{
    while (p->at < p->n && strchr(" \t\r\n", p->s[p->at]) && p->s[p->at])
        p->at++;
}

/* 1: the next byte is c, and is read */
static int skip(struct reader *p, char c)
{
    blanks(p);
    if (p->at >= p->n || p->s[p->at] != c)
        return 0;
    p->at++;
    return 1;
}

static int read_value(struct reader *p, struct jv *out);

static int hex4(struct reader *p, uint32_t *c)
{
    *c = 0;
    if (p->n - p->at < 4)
        return bad(p, "\\u without four digits");
    for (int i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *d = p->s[p->at] ? strchr(digits, p->s[p->at]) : NULL;
        if (!d)
            return bad(p, "\\u without four digits");
        *c = *c << 4 | (uint32_t)((d - digits) & 15);
        p->at++;
    }
    return CB_OK;
}

/* After \u. A surrogate without its other half becomes U+FFFD. */
static int unicode(struct reader *p, struct jout *o)
{
    uint32_t c, low;
    char buf[4];

    TRY(hex4(p, &c));
    if (c >= 0xD800 && c < 0xDC00 && p->n - p->at >= 6 && !memcmp(p->s + p->at, "\\u", 2)) {
        const size_t back = p->at;
        p->at += 2;
        TRY(hex4(p, &low));
        if (low >= 0xDC00 && low < 0xE000)
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        else
            p->at = back;
    }
    if (c >= 0xD800 && c < 0xE000)
        c = 0xFFFD;
    return cb_jout_bytes(o, buf, (size_t)cb_utf8_put(c, buf), 1);
}

static int escape(struct reader *p, struct jout *o)
{
    static const char letter[] = "nrtbf\"\\/", plain[] = "\n\r\t\b\f\"\\/";
    const char c = p->at < p->n ? p->s[p->at++] : 0;
    const char *l = c ? strchr(letter, c) : NULL;

    if (c == 'u')
        return unicode(p, o);
    if (!l)
        return bad(p, "an unknown escape");
    return cb_jout_bytes(o, plain + (l - letter), 1, 1);
}

static int read_str(struct reader *p, struct jv *out) /* after the quote */
{
    struct jout o = { .r = p->r };

    for (;;) {
        const size_t from = p->at;
        while (p->at < p->n && (unsigned char)p->s[p->at] >= 0x20 && p->s[p->at] != '"' &&
               p->s[p->at] != '\\')
            p->at++;
        TRY(cb_jout_bytes(&o, p->s + from, p->at - from, 1));
        if (p->at >= p->n)
            return bad(p, "the text ends within a string");
        if ((unsigned char)p->s[p->at] < 0x20)
            return bad(p, "a control character within a string");
        if (p->s[p->at++] == '"')
            break;
        TRY(escape(p, &o));
    }
    *out = cb_jout_str(&o);
    return CB_OK;
}

static int read_num(struct reader *p, struct jv *out)
{
    char buf[64];
    size_t n = 0;
    int real = 0;
    const char *d;

    while (p->at < p->n && n + 1 < sizeof buf && p->s[p->at] &&
           strchr("+-.0123456789eE", p->s[p->at])) {
        real |= strchr(".eE", p->s[p->at]) != NULL;
        buf[n++] = p->s[p->at++];
    }
    buf[n] = '\0';
    d = buf + (*buf == '-');
    if (*d < '0' || *d > '9' || (*d == '0' && d[1] >= '0' && d[1] <= '9'))
        return bad(p, "not a value");
    if (!real) {
        char *end;
        errno = 0;
        *out = cb_jint(strtoll(buf, &end, 10));
        if (!errno && !*end)
            return CB_OK;
    }
    out->kind = J_FLOAT;
    return cb_jnumber(buf, &out->f) ? CB_OK : bad(p, "not a number");
}

static int read_list(struct reader *p, struct jv *out)
{
    TRY(cb_jlist_new(p->r, 0, out));
    if (skip(p, ']'))
        return CB_OK;
    do {
        struct jv v;
        TRY(read_value(p, &v));
        TRY(cb_jlist_add(p->r, out, &v));
    } while (skip(p, ','));
    return skip(p, ']') ? CB_OK : bad(p, "a list without its ]");
}

static int read_dict(struct reader *p, struct jv *out)
{
    TRY(cb_jdict_new(p->r, out));
    if (skip(p, '}'))
        return CB_OK;
    do {
        struct jv key, v;
        if (!skip(p, '"'))
            return bad(p, "a key is not a string");
        TRY(read_str(p, &key));
        if (!skip(p, ':'))
            return bad(p, "a key without a value");
        TRY(read_value(p, &v));
        TRY(cb_jdict_put(p->r, out->dict, &key, &v));
    } while (skip(p, ','));
    return skip(p, '}') ? CB_OK : bad(p, "an object without its }");
}

static int read_word(struct reader *p, struct jv *out)
{
    static const char *const words[] = { "true", "false", "null" };

    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(words[i]);
        if (p->n - p->at >= n && !memcmp(p->s + p->at, words[i], n)) {
            p->at += n;
            *out = i == 2 ? (struct jv){ .kind = J_NONE } : cb_jbool(i == 0);
            return CB_OK;
        }
    }
    return read_num(p, out);
}

static int read_value(struct reader *p, struct jv *out)
{
    int rc;

    TRY(cb_jstep(p->r, 0));
    if (skip(p, '"'))
        return read_str(p, out);
    if (p->at < p->n && (p->s[p->at] == '[' || p->s[p->at] == '{')) {
        TRY(cb_jdeeper(p->r));
        rc = p->s[p->at++] == '[' ? read_list(p, out) : read_dict(p, out);
        p->r->depth--;
        return rc;
    }
    return read_word(p, out);
}

int cb_jread(struct jrun *r, const char *s, size_t n, struct jv *out)
{
    struct reader p = { .r = r, .s = s, .n = n };

    TRY(read_value(&p, out));
    blanks(&p);
    return p.at == n ? CB_OK : bad(&p, "more text after the value");
}
