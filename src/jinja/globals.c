/* SPDX-License-Identifier: MIT */
/* globals.c - functions that a template can call by name. */
#include <string.h>

#include "native.h"

#define GLOBAL(name)                                                                               \
    static int name(struct jrun *r, const struct jv *self, const struct jargs *a, struct jv *out)

enum { MAX_RANGE = 100000 }; /* as in the sandbox that these templates are made for */

GLOBAL(range)
{
    int64_t at[3] = { 0, 0, 1 };

    (void)self;
    if (!a->n || a->n > 3)
        return cb_jfail(r, "range takes one to three numbers");
    for (size_t i = 0; i < a->n; i++) {
        if (a->at[i].kind != J_INT)
            return cb_jfail(r, "range: a %s is not a whole number", cb_jkind_name(&a->at[i]));
        at[a->n == 1 ? 1 : i] = a->at[i].i;
    }
    if (!at[2] || at[2] > INT32_MAX || at[2] < -INT32_MAX)
        return cb_jfail(r, "range: the step is 0 or too large");
    TRY(cb_jlist_new(r, 0, out));
    for (int64_t i = at[0]; at[2] > 0 ? i < at[1] : i > at[1];) {
        const struct jv v = cb_jint(i);
        if (out->list->n >= MAX_RANGE)
            return cb_jfail(r, "range: more than %d numbers", MAX_RANGE);
        TRY(cb_jlist_add(r, out, &v));
        if (__builtin_add_overflow(i, at[2], &i))
            break;
    }
    return CB_OK;
}

/* dict(other, name=value, ...) */
GLOBAL(dict)
{
    (void)self;
    if (a->n > 1 || (a->n && a->at[0].kind != J_DICT))
        return cb_jfail(r, "dict takes one dict and named values");
    TRY(cb_jdict_new(r, out));
    for (size_t i = 0; a->n && i < a->at[0].dict->n; i++)
        TRY(cb_jdict_put(r, out->dict, &a->at[0].dict->at[i].key, &a->at[0].dict->at[i].value));
    for (size_t i = 0; i < a->n_kw; i++) {
        const struct jv key = cb_jstr_of(a->kw[i].name);
        TRY(cb_jdict_put(r, out->dict, &key, &a->kw[i].value));
    }
    return CB_OK;
}

GLOBAL(namespace)
{
    TRY(dict(r, self, a, out));
    out->kind = J_NAMESPACE;
    return CB_OK;
}

/* The template refuses the conversation. */
GLOBAL(raise_exception)
{
    struct jstr why = cb_jtext("the template refuses the conversation").str;

    (void)self, (void)out;
    TRY(cb_jarg_str(r, a, 0, "message", &why));
    return cb_fail(CB_EARG, "chat template: %.*s", why.n < 200 ? (int)why.n : 200, why.s);
}

GLOBAL(strftime_now)
{
    struct jstr form = { 0 };
    /* through a pointer: the compiler warns of formats that it cannot read */
    size_t (*const by_format)(char *, size_t, const char *, const struct tm *) = strftime;
    char f[128], buf[512], *p;
    size_t n;

    (void)self;
    TRY(cb_jarg_str(r, a, 0, "format", &form));
    if (!form.s || form.n >= sizeof f)
        return cb_jfail(r, "strftime_now: no format, or one of more than %zu bytes", sizeof f - 1);
    memcpy(f, form.s, form.n);
    f[form.n] = '\0';
    n = by_format(buf, sizeof buf, f, &r->now);
    p = cb_jalloc(r, n + 1, 1);
    if (!p)
        return CB_ENOMEM;
    memcpy(p, buf, n);
    *out = cb_jstr_of((struct jstr){ p, NULL, n });
    return CB_OK;
}

static const struct jentry globals[] = {
    { "range", range },
    { "dict", dict },
    { "namespace", namespace },
    { "raise_exception", raise_exception },
    { "strftime_now", strftime_now },
};

jfn cb_jglobal(const struct jstr *name)
{
    return cb_jentry(globals, sizeof globals / sizeof *globals, name);
}
