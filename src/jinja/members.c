/* SPDX-License-Identifier: MIT */
/* members.c - what stands after a dot or between brackets: attributes, methods, elements. Methods
 * that change a list or a dict are not there, as in the sandbox that these templates are made for.
 */
#include "members.h"

#include <stdlib.h>
#include <string.h>

#include "str_methods.h"

#define METHOD(name)                                                                               \
    static int name(struct jrun *r, const struct jv *self, const struct jargs *a, struct jv *out)

/* ---- dicts and lists ---- */

int cb_jtuple2(struct jrun *r, const struct jv *a, const struct jv *b, struct jv *out)
{
    TRY(cb_jlist_new(r, 2, out));
    TRY(cb_jlist_add(r, out, a));
    TRY(cb_jlist_add(r, out, b));
    out->kind = J_TUPLE;
    return CB_OK;
}

int cb_jdict_items(struct jrun *r, const struct jdict *d, struct jv *list)
{
    TRY(cb_jlist_new(r, d->n, list));
    for (size_t i = 0; i < d->n; i++) {
        struct jv pair;
        TRY(cb_jtuple2(r, &d->at[i].key, &d->at[i].value, &pair));
        TRY(cb_jlist_add(r, list, &pair));
    }
    return CB_OK;
}

METHOD(items)
{
    TRY(cb_jargs_most(r, a, "items", 0));
    return cb_jdict_items(r, self->dict, out);
}

METHOD(keys)
{
    TRY(cb_jargs_most(r, a, "keys", 0));
    return cb_jitems(r, self, out);
}

METHOD(values)
{
    TRY(cb_jargs_most(r, a, "values", 0));
    TRY(cb_jlist_new(r, self->dict->n, out));
    for (size_t i = 0; i < self->dict->n; i++)
        TRY(cb_jlist_add(r, out, &self->dict->at[i].value));
    return CB_OK;
}

METHOD(get)
{
    const struct jv *key = cb_jarg(a, 0, "key"), *otherwise = cb_jarg(a, 1, "default"), *found;

    if (!key)
        return cb_jfail(r, "get lacks its key");
    TRY(cb_jdict_get(r, self->dict, key, &found));
    *out = found ? *found : otherwise ? *otherwise : (struct jv){ .kind = J_NONE };
    return CB_OK;
}

METHOD(copy)
{
    TRY(cb_jargs_most(r, a, "copy", 0));
    *out = *self;
    return CB_OK;
}

METHOD(list_count)
{
    const struct jv *v = cb_jarg(a, 0, "value");
    int64_t n = 0;

    for (size_t i = 0; v && i < self->list->n; i++) {
        int same;
        TRY(cb_jequal(r, &self->list->at[i], v, &same));
        n += same;
    }
    *out = cb_jint(n);
    return v ? CB_OK : cb_jfail(r, "count lacks its argument");
}

METHOD(list_index)
{
    const struct jv *v = cb_jarg(a, 0, "value");

    for (size_t i = 0; v && i < self->list->n; i++) {
        int same;
        TRY(cb_jequal(r, &self->list->at[i], v, &same));
        if (same) {
            *out = cb_jint((int64_t)i);
            return CB_OK;
        }
    }
    return cb_jfail(r, "index: the value is not in the list");
}

METHOD(unsafe)
{
    (void)self, (void)a, (void)out;
    return cb_jfail(r, "methods that change a list or a dict are not allowed");
}

static const struct jentry of_dict[] = {
    { "get", get },           { "items", items },    { "keys", keys },     { "values", values },
    { "copy", copy },         { "pop", unsafe },     { "update", unsafe }, { "clear", unsafe },
    { "setdefault", unsafe }, { "popitem", unsafe },
};

static const struct jentry of_list[] = {
    { "index", list_index }, { "count", list_count }, { "copy", copy },    { "append", unsafe },
    { "extend", unsafe },    { "insert", unsafe },    { "pop", unsafe },   { "remove", unsafe },
    { "reverse", unsafe },   { "sort", unsafe },      { "clear", unsafe },
};

static jfn method_of(enum jkind kind, const struct jstr *name)
{
    switch (kind) {
    case J_STR:
        return cb_jstr_method(name);
    case J_DICT:
        return cb_jentry(of_dict, sizeof of_dict / sizeof *of_dict, name);
    case J_LIST:
    case J_TUPLE:
        return cb_jentry(of_list, sizeof of_list / sizeof *of_list, name);
    default:
        return NULL;
    }
}

/* ---- elements ---- */

static int undefined(struct jrun *r, const struct jv *v)
{
    return cb_jfail(r, "'%.*s' is undefined", v->str.n < 60 ? (int)v->str.n : 60, v->str.s);
}

static int method(struct jrun *r, const struct jv *v, const struct jstr *name, struct jv *out)
{
    const jfn fn = method_of(v->kind, name);
    struct jfunc *f;

    if (!fn)
        return 0;
    f = cb_jalloc(r, 1, sizeof *f);
    if (!f)
        return CB_ENOMEM;
    *f = (struct jfunc){ .fn = fn, .self = *v, .name = "a method" };
    *out = (struct jv){ .kind = J_FUNC, .func = f };
    return 1;
}

static int element(struct jrun *r, const struct jv *v, const struct jv *key, struct jv *out)
{
    const struct jv *found;

    *out = (struct jv){ .kind = J_UNDEFINED,
                        .str = key->kind == J_STR ? key->str : cb_jtext("element").str };
    if (v->kind == J_DICT || v->kind == J_NAMESPACE) {
        if (cb_jis_seq(key) || key->kind == J_DICT)
            return CB_OK;
        TRY(cb_jdict_get(r, v->dict, key, &found));
        if (found)
            *out = *found;
        return found != NULL;
    }
    if (key->kind != J_INT && key->kind != J_BOOL)
        return 0;
    if (cb_jis_seq(v)) {
        const int64_t n = (int64_t)v->list->n, i = key->i < 0 ? key->i + n : key->i;
        if (i < 0 || i >= n)
            return 0;
        *out = v->list->at[i];
        return 1;
    }
    if (v->kind == J_STR) {
        const int64_t n = (int64_t)cb_jchars(v->str.s, v->str.n);
        const int64_t i = key->i < 0 ? key->i + n : key->i;
        size_t at;
        TRY(cb_jstep(r, v->str.n));
        if (i < 0 || i >= n)
            return 0;
        at = cb_jbyte_of(&v->str, (size_t)i);
        *out = cb_jslice(v->str, at, at + cb_jchar(&v->str, at));
        return 1;
    }
    return 0;
}

int cb_jattr(struct jrun *r, const struct jv *v, const struct jstr *name, struct jv *out)
{
    const struct jv key = cb_jstr_of(*name);
    int got;

    if (v->kind == J_UNDEFINED)
        return undefined(r, v);
    got = method(r, v, name, out);
    TRY(got);
    if (got)
        return CB_OK;
    got = element(r, v, &key, out);
    return got < 0 ? got : CB_OK;
}

int cb_jitem(struct jrun *r, const struct jv *v, const struct jv *key, struct jv *out)
{
    int got;

    if (v->kind == J_UNDEFINED)
        return undefined(r, v);
    got = element(r, v, key, out);
    TRY(got);
    if (got || key->kind != J_STR)
        return CB_OK;
    got = method(r, v, &key->str, out);
    return got < 0 ? got : CB_OK;
}

/* ---- slices ---- */

static int bound(struct jrun *r, const struct jv *v, int64_t n, int64_t low, int64_t high,
                 int64_t *i)
{
    if (v->kind == J_NONE || v->kind == J_UNDEFINED)
        return CB_OK;
    if (v->kind != J_INT && v->kind != J_BOOL)
        return cb_jfail(r, "a slice's bound is a %s", cb_jkind_name(v));
    *i = v->i < 0 ? v->i + n : v->i;
    *i = *i < low ? low : *i > high ? high : *i;
    return CB_OK;
}

/* As Python: elements from, from + step ... up to but without to */
static int bounds(struct jrun *r, const struct jv at[3], int64_t n, int64_t out[3])
{
    int64_t step = 1;

    TRY(bound(r, &at[2], 0, INT64_MIN, INT64_MAX, &step));
    if (!step)
        return cb_jfail(r, "a slice's step is 0");
    step = step > n + 1 ? n + 1 : step < -n - 1 ? -n - 1 : step;
    out[0] = step > 0 ? 0 : n - 1;
    out[1] = step > 0 ? n : -1;
    out[2] = step;
    TRY(bound(r, &at[0], n, step > 0 ? 0 : -1, step > 0 ? n : n - 1, &out[0]));
    return bound(r, &at[1], n, step > 0 ? 0 : -1, step > 0 ? n : n - 1, &out[1]);
}

static int range_of_text(struct jrun *r, const struct jv *v, const struct jv at[3], struct jv *out)
{
    const int64_t n = (int64_t)cb_jchars(v->str.s, v->str.n);
    struct jout o = { .r = r };
    struct jv chars;
    int64_t b[3];

    TRY(cb_jstep(r, v->str.n));
    TRY(bounds(r, at, n, b));
    if (b[2] == 1) {
        const size_t from = cb_jbyte_of(&v->str, (size_t)b[0]);
        const size_t to = b[1] > b[0] ? cb_jbyte_of(&v->str, (size_t)b[1]) : from;
        *out = cb_jslice(v->str, from, to);
        return CB_OK;
    }
    TRY(cb_jitems(r, v, &chars));
    for (int64_t i = b[0]; b[2] > 0 ? i < b[1] : i > b[1]; i += b[2])
        TRY(cb_jout_put(&o, chars.list->at[i].str));
    *out = cb_jout_str(&o);
    return CB_OK;
}

int cb_jrange(struct jrun *r, const struct jv *v, const struct jv at[3], struct jv *out)
{
    int64_t b[3];

    if (v->kind == J_STR)
        return range_of_text(r, v, at, out);
    if (v->kind == J_UNDEFINED)
        return undefined(r, v);
    if (!cb_jis_seq(v))
        return cb_jfail(r, "a %s has no slices", cb_jkind_name(v));
    TRY(bounds(r, at, (int64_t)v->list->n, b));
    TRY(cb_jlist_new(r, 0, out));
    for (int64_t i = b[0]; b[2] > 0 ? i < b[1] : i > b[1]; i += b[2])
        TRY(cb_jlist_add(r, out, &v->list->at[i]));
    out->kind = v->kind;
    return CB_OK;
}

/* ---- paths ---- */

/* A name of digits is an index. */
static struct jv path_key(struct jstr part)
{
    int64_t i = 0;

    for (size_t k = 0; k < part.n; k++) {
        if (part.s[k] < '0' || part.s[k] > '9' || k > 9)
            return cb_jstr_of(part);
        i = 10 * i + part.s[k] - '0';
    }
    return part.n ? cb_jint(i) : cb_jstr_of(part);
}

int cb_jpath(struct jrun *r, const struct jv *v, const struct jv *path, struct jv *out)
{
    struct jv at = *v;

    if (path->kind == J_INT)
        return cb_jitem(r, v, path, out);
    if (path->kind != J_STR)
        return cb_jfail(r, "attribute is a %s, not a name", cb_jkind_name(path));
    for (size_t i = 0, to; i <= path->str.n; i = to + 1) {
        const char *dot = i < path->str.n ? memchr(path->str.s + i, '.', path->str.n - i) : NULL;
        struct jv key, next;
        to = dot ? (size_t)(dot - path->str.s) : path->str.n;
        key = path_key(cb_jslice(path->str, i, to).str);
        TRY(cb_jitem(r, &at, &key, &next));
        at = next;
    }
    *out = at;
    return CB_OK;
}
