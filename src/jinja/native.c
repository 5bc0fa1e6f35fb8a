/* SPDX-License-Identifier: MIT */
/* native.c - arguments of functions. */
#include "native.h"

#include <string.h>

jfn cb_jentry(const struct jentry *table, size_t n, const struct jstr *s)
{
    const struct jv name = cb_jstr_of(*s);

    for (size_t i = 0; i < n; i++)
        if (cb_jis(&name, table[i].name))
            return table[i].fn;
    return NULL;
}

const struct jv *cb_jkw(const struct jargs *a, const char *name)
{
    for (size_t i = 0; i < a->n_kw; i++) {
        const struct jv k = cb_jstr_of(a->kw[i].name);
        if (cb_jis(&k, name))
            return &a->kw[i].value;
    }
    return NULL;
}

const struct jv *cb_jarg(const struct jargs *a, size_t i, const char *name)
{
    return i < a->n ? &a->at[i] : cb_jkw(a, name);
}

int cb_jarg_int(struct jrun *r, const struct jargs *a, size_t i, const char *name, int64_t *out)
{
    const struct jv *v = cb_jarg(a, i, name);

    if (!v || v->kind == J_NONE)
        return CB_OK;
    if (v->kind != J_INT && v->kind != J_BOOL)
        return cb_jfail(r, "%s is a %s, not a whole number", name, cb_jkind_name(v));
    *out = v->i;
    return CB_OK;
}

int cb_jarg_true(const struct jargs *a, size_t i, const char *name, int otherwise)
{
    const struct jv *v = cb_jarg(a, i, name);

    return v ? cb_jtrue(v) : otherwise;
}

int cb_jarg_str(struct jrun *r, const struct jargs *a, size_t i, const char *name, struct jstr *out)
{
    const struct jv *v = cb_jarg(a, i, name);

    if (!v || v->kind == J_NONE)
        return CB_OK;
    if (v->kind != J_STR)
        return cb_jfail(r, "%s is a %s, not a text", name, cb_jkind_name(v));
    *out = v->str;
    return CB_OK;
}

int cb_jargs_most(struct jrun *r, const struct jargs *a, const char *who, size_t most)
{
    if (a->n + a->n_kw > most)
        return cb_jfail(r, "%s takes at most %zu arguments", who, most);
    return CB_OK;
}

struct jargs cb_jargs_from(const struct jargs *a, size_t i)
{
    struct jargs b = *a;

    if (i > b.n)
        i = b.n;
    if (i > 0)
        b.at += i;
    b.n -= i;
    return b;
}
