/* SPDX-License-Identifier: MIT */
/* jformat.c - texts with places for values: Python's % and str.format. */
#include "jformat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "jnum.h"
#include "jprint.h"

struct spec {
    char flags[8];
    int width, digits; /* -1 = not given */
    char kind;
};

enum { MAX_WIDTH = 1000 };

static size_t number(const struct jstr *s, size_t i, int *out)
{
    int v = -1;

    for (; i < s->n && s->s[i] >= '0' && s->s[i] <= '9'; i++)
        v = v < 0 ? s->s[i] - '0' : v < MAX_WIDTH ? 10 * v + s->s[i] - '0' : v;
    *out = v;
    return i;
}

/* After a '%'; returns where the text continues */
static size_t read_spec(const struct jstr *s, size_t i, struct spec *f)
{
    size_t n = 0;

    *f = (struct spec){ .digits = -1 };
    for (; i < s->n && s->s[i] && strchr("-+ 0#", s->s[i]); i++)
        if (n + 1 < sizeof f->flags && !strchr(f->flags, s->s[i]))
            f->flags[n++] = s->s[i];
    i = number(s, i, &f->width);
    if (i < s->n && s->s[i] == '.') {
        i = number(s, i + 1, &f->digits);
        f->digits = f->digits < 0 ? 0 : f->digits;
    }
    f->kind = i < s->n ? s->s[i++] : 0;
    return i;
}

/* The digits of |d| */
static void float_digits(const struct spec *f, double d, char *buf, size_t cap)
{
    const int digits = f->digits < 0 ? 6 : f->digits > MAX_WIDTH ? MAX_WIDTH : f->digits;

    if (strchr("eE", f->kind))
        snprintf(buf, cap, "%.*e", digits, fabs(d));
    else if (strchr("gG", f->kind))
        snprintf(buf, cap, "%.*g", digits, fabs(d));
    else
        snprintf(buf, cap, "%.*f", digits, fabs(d));
    cb_jfix_point(buf);
}

static int int_digits(struct jout *o, const struct spec *f, const struct jv *v, char *buf,
                      size_t cap)
{
    const double d = fabs(cb_jnum(v));
    unsigned long long u;

    if (!(d < 9e18))
        return cb_jfail(o->r, "%%%c: the number is too large", f->kind);
    u = v->kind == J_FLOAT ? (unsigned long long)d
        : v->i < 0         ? (unsigned long long)-v->i
                           : (unsigned long long)v->i;
    if (f->kind == 'x' || f->kind == 'X')
        snprintf(buf, cap, f->kind == 'x' ? "%llx" : "%llX", u);
    else if (f->kind == 'o')
        snprintf(buf, cap, "%llo", u);
    else
        snprintf(buf, cap, "%llu", u);
    return CB_OK;
}

static int repeat(struct jout *o, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        TRY(cb_jout_text(o, s));
    return CB_OK;
}

/* `text` after its sign, in a field of the width asked for */
static int put_field(struct jout *o, const struct spec *f, const char *sign, struct jstr text)
{
    const size_t n = strlen(sign) + cb_jchars(text.s, text.n);
    const size_t pad = f->width > 0 && (size_t)f->width > n ? (size_t)f->width - n : 0;
    const int left = strchr(f->flags, '-') != NULL;
    const int zero = !left && strchr(f->flags, '0') && !strchr("sr", f->kind);

    TRY(left || zero ? CB_OK : repeat(o, " ", pad));
    TRY(cb_jout_text(o, sign));
    TRY(zero ? repeat(o, "0", pad) : CB_OK);
    TRY(cb_jout_put(o, text));
    return left ? repeat(o, " ", pad) : CB_OK;
}

static int put_number(struct jout *o, const struct spec *f, const struct jv *v)
{
    char buf[MAX_WIDTH + 400];
    const char *sign = strchr(f->flags, '+') ? "+" : strchr(f->flags, ' ') ? " " : "";

    if (!cb_jis_num(v))
        return cb_jfail(o->r, "%%%c needs a number, not a %s", f->kind, cb_jkind_name(v));
    if (strchr("dixXo", f->kind))
        TRY(int_digits(o, f, v, buf, sizeof buf));
    else
        float_digits(f, cb_jnum(v), buf, sizeof buf);
    if (cb_jnum(v) < 0)
        sign = "-";
    return put_field(o, f, sign, (struct jstr){ buf, NULL, strlen(buf) });
}

static int put_text(struct jout *o, const struct spec *f, const struct jv *v)
{
    struct jout text = { .r = o->r };
    struct jstr s;

    TRY(f->kind == 'r' ? cb_jrepr(&text, v) : cb_jprint(&text, v));
    s = cb_jout_str(&text).str;
    if (f->digits >= 0)
        s.n = cb_jbyte_of(&s, (size_t)f->digits);
    return put_field(o, f, "", s);
}

static int put_value(struct jout *o, const struct spec *f, const struct jv *v)
{
    if (f->kind == 's' || f->kind == 'r')
        return put_text(o, f, v);
    if (f->kind && strchr("dixXofFeEgG", f->kind))
        return put_number(o, f, v);
    return cb_jfail(o->r, "%%%c is not a known format", f->kind ? f->kind : ' ');
}

int cb_jpercent(struct jrun *r, const struct jstr *s, const struct jargs *a, struct jv *out)
{
    struct jout o = { .r = r };
    size_t next = 0;

    for (size_t i = 0; i < s->n;) {
        const char *p = memchr(s->s + i, '%', s->n - i);
        const size_t at = p ? (size_t)(p - s->s) : s->n;
        struct spec f;
        TRY(cb_jout_put(&o, cb_jslice(*s, i, at).str));
        if (!p)
            break;
        i = read_spec(s, at + 1, &f);
        if (f.kind == '%') {
            TRY(cb_jout_put(&o, cb_jslice(*s, at, at + 1).str));
            continue;
        }
        if (next >= a->n)
            return cb_jfail(r, "%% lacks a value");
        TRY(put_value(&o, &f, &a->at[next++]));
    }
    if (next < a->n)
        return cb_jfail(r, "%% has more values than places");
    *out = cb_jout_str(&o);
    return CB_OK;
}

/* The value that the place {name} stands for */
static int place(struct jrun *r, const struct jstr *name, const struct jargs *a, size_t *next,
                 const struct jv **v)
{
    int i;

    *v = NULL;
    if (!name->n)
        i = (int)(*next)++;
    else if (number(name, 0, &i) != name->n)
        i = -1;
    if (i >= 0 && (size_t)i < a->n)
        *v = &a->at[i];
    for (size_t k = 0; i < 0 && k < a->n_kw; k++)
        if (a->kw[k].name.n == name->n && !memcmp(a->kw[k].name.s, name->s, name->n))
            *v = &a->kw[k].value;
    return *v ? CB_OK : cb_jfail(r, "format: no value for {%.*s}", (int)name->n, name->s);
}

int cb_jformat(struct jrun *r, const struct jv *self, const struct jargs *a, struct jv *out)
{
    const struct jstr *s = &self->str;
    struct jout o = { .r = r };
    size_t next = 0;

    for (size_t i = 0; i < s->n;) {
        const char c = s->s[i];
        const struct jv *v;
        const char *end;
        if ((c != '{' && c != '}') || (i + 1 < s->n && s->s[i + 1] == c)) {
            TRY(cb_jout_put(&o, cb_jslice(*s, i, i + 1).str));
            i += c == '{' || c == '}' ? 2 : 1;
            continue;
        }
        end = c == '{' ? memchr(s->s + i, '}', s->n - i) : NULL;
        if (!end || end - (s->s + i) > 100)
            return cb_jfail(r, "format: a brace without its other");
        const struct jstr name = cb_jslice(*s, i + 1, (size_t)(end - s->s)).str;
        TRY(place(r, &name, a, &next, &v));
        TRY(cb_jprint(&o, v));
        i = (size_t)(end - s->s) + 1;
    }
    *out = cb_jout_str(&o);
    return CB_OK;
}
