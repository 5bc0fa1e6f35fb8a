/* SPDX-License-Identifier: MIT */
/* jvalue.c - values: made, compared, searched. */
#include "jvalue.h"

#include <string.h>

/* ---- making ---- */

struct jv cb_jundef(const char *name)
{
    return (struct jv){ .kind = J_UNDEFINED, .str = { name, NULL, strlen(name) } };
}

struct jv cb_jbool(int yes)
{
    return (struct jv){ .kind = J_BOOL, .i = yes != 0 };
}

struct jv cb_jint(int64_t i)
{
    return (struct jv){ .kind = J_INT, .i = i };
}

struct jv cb_jfloat(double f)
{
    return (struct jv){ .kind = J_FLOAT, .f = f };
}

struct jv cb_jstr_of(struct jstr s)
{
    return (struct jv){ .kind = J_STR, .str = s };
}

struct jv cb_jtext(const char *s)
{
    return cb_jstr_of((struct jstr){ s, NULL, strlen(s) });
}

struct jv cb_jslice(struct jstr s, size_t from, size_t to)
{
    return cb_jstr_of((struct jstr){ s.s + from, s.own ? s.own + from : NULL, to - from });
}

static int own_ones(struct jrun *r, size_t n, const uint8_t **ones)
{
    if (n > r->n_ones) {
        const size_t cap = n < 1024 ? 1024 : n + n / 2;
        uint8_t *p = cb_jalloc(r, cap, 1);
        if (!p)
            return CB_ENOMEM;
        memset(p, 1, cap);
        r->ones = p;
        r->n_ones = cap;
    }
    *ones = r->ones;
    return CB_OK;
}

int cb_jgiven(struct jrun *r, const char *s, size_t n, struct jv *out)
{
    char *p = cb_jalloc(r, n + 1, 1);
    const uint8_t *ones;

    if (!p)
        return CB_ENOMEM;
    TRY(own_ones(r, n, &ones));
    if (n)
        memcpy(p, s, n);
    *out = cb_jstr_of((struct jstr){ p, ones, n });
    return CB_OK;
}

int cb_jlist_new(struct jrun *r, size_t cap, struct jv *out)
{
    struct jlist *l = cb_jalloc(r, 1, sizeof *l);

    if (!l)
        return CB_ENOMEM;
    if (cap) {
        l->at = cb_jalloc(r, cap, sizeof *l->at);
        if (!l->at)
            return CB_ENOMEM;
        l->cap = cap;
    }
    *out = (struct jv){ .kind = J_LIST, .list = l };
    return CB_OK;
}

/* Makes room for one more of n elements at *p. */
static int grow(struct jrun *r, void **p, size_t n, size_t *cap, size_t size)
{
    const size_t more = 2 * *cap + 4;
    void *q;

    if (n < *cap)
        return CB_OK;
    q = cb_jalloc(r, more, size);
    if (!q)
        return CB_ENOMEM;
    if (n)
        memcpy(q, *p, n * size);
    *p = q;
    *cap = more;
    return CB_OK;
}

int cb_jlist_add(struct jrun *r, struct jv *list, const struct jv *v)
{
    struct jlist *l = list->list;

    TRY(cb_jstep(r, 0));
    TRY(grow(r, (void **)&l->at, l->n, &l->cap, sizeof *l->at));
    l->at[l->n++] = *v;
    return CB_OK;
}

int cb_jdict_new(struct jrun *r, struct jv *out)
{
    struct jdict *d = cb_jalloc(r, 1, sizeof *d);

    if (!d)
        return CB_ENOMEM;
    *out = (struct jv){ .kind = J_DICT, .dict = d };
    return CB_OK;
}

static int find_pair(struct jrun *r, const struct jdict *d, const struct jv *key,
                     struct jpair **found)
{
    *found = NULL;
    if (cb_jis_seq(key) && key->kind == J_LIST)
        return cb_jfail(r, "a list cannot be a key");
    for (size_t i = 0; i < d->n && !*found; i++) {
        int same;
        TRY(cb_jequal(r, &d->at[i].key, key, &same));
        if (same)
            *found = &d->at[i];
    }
    return CB_OK;
}

int cb_jdict_get(struct jrun *r, const struct jdict *d, const struct jv *key,
                 const struct jv **found)
{
    struct jpair *p;

    TRY(find_pair(r, d, key, &p));
    *found = p ? &p->value : NULL;
    return CB_OK;
}

int cb_jdict_at(struct jrun *r, const struct jdict *d, const char *key, const struct jv **found)
{
    const struct jv k = cb_jtext(key);

    return cb_jdict_get(r, d, &k, found);
}

int cb_jdict_put(struct jrun *r, struct jdict *d, const struct jv *key, const struct jv *value)
{
    struct jpair *p;

    TRY(find_pair(r, d, key, &p));
    if (!p) {
        TRY(grow(r, (void **)&d->at, d->n, &d->cap, sizeof *d->at));
        p = &d->at[d->n++];
        p->key = *key;
    }
    p->value = *value;
    return CB_OK;
}

int cb_jdict_set(struct jrun *r, struct jdict *d, const char *key, struct jv value)
{
    const struct jv k = cb_jtext(key);

    return cb_jdict_put(r, d, &k, &value);
}

/* ---- a text that grows ---- */

int cb_jout_room(struct jout *o, size_t n)
{
    size_t cap = o->cap ? o->cap : n > 64 ? n : 64;
    uint8_t *own = NULL;
    char *s;

    if (o->limit && n > o->limit - o->n)
        return cb_jfail(o->r, "writes more than %zu bytes", o->limit);
    if (n <= o->cap - o->n)
        return CB_OK;
    while (cap - o->n < n && cap <= SIZE_MAX / 4)
        cap *= 2;
    s = cb_jalloc(o->r, cap, 1);
    if (s && o->own)
        own = cb_jalloc(o->r, cap, 1);
    if (!s || (o->own && !own))
        return CB_ENOMEM;
    if (o->n)
        memcpy(s, o->s, o->n);
    if (o->n && own)
        memcpy(own, o->own, o->n);
    o->s = s;
    o->own = own;
    o->cap = cap;
    return CB_OK;
}

int cb_jout_put(struct jout *o, struct jstr s)
{
    TRY(cb_jstep(o->r, s.n));
    if (!s.n)
        return CB_OK;
    TRY(cb_jout_room(o, s.n));
    if (s.own && !o->own) {
        o->own = cb_jalloc(o->r, o->cap, 1);
        if (!o->own)
            return CB_ENOMEM;
    }
    memcpy(o->s + o->n, s.s, s.n);
    if (s.own)
        memcpy(o->own + o->n, s.own, s.n);
    o->n += s.n;
    return CB_OK;
}

int cb_jout_text(struct jout *o, const char *s)
{
    return cb_jout_put(o, (struct jstr){ s, NULL, strlen(s) });
}

int cb_jout_bytes(struct jout *o, const char *s, size_t n, int own)
{
    struct jstr t = { s, NULL, n };

    if (own)
        TRY(own_ones(o->r, n, &t.own));
    return cb_jout_put(o, t);
}

struct jv cb_jout_str(const struct jout *o)
{
    return cb_jstr_of((struct jstr){ o->n ? o->s : "", o->own, o->n });
}

/* ---- asking ---- */

const char *cb_jkind_name(const struct jv *v)
{
    static const char *const names[] = {
        [J_UNDEFINED] = "undefined", [J_NONE] = "none",
        [J_BOOL] = "bool",           [J_INT] = "int",
        [J_FLOAT] = "float",         [J_STR] = "str",
        [J_LIST] = "list",           [J_TUPLE] = "tuple",
        [J_DICT] = "dict",           [J_NAMESPACE] = "namespace",
        [J_LOOP] = "loop",           [J_FUNC] = "function",
    };

    return names[v->kind];
}

int cb_jtrue(const struct jv *v)
{
    switch (v->kind) {
    case J_UNDEFINED:
    case J_NONE:
        return 0;
    case J_BOOL:
    case J_INT:
        return v->i != 0;
    case J_FLOAT:
        return v->f < 0 || v->f > 0 || v->f != v->f;
    case J_STR:
        return v->str.n != 0;
    case J_LIST:
    case J_TUPLE:
        return v->list->n != 0;
    case J_DICT:
        return v->dict->n != 0;
    default:
        return 1;
    }
}

int cb_jis_num(const struct jv *v)
{
    return v->kind == J_INT || v->kind == J_FLOAT || v->kind == J_BOOL;
}

double cb_jnum(const struct jv *v)
{
    return v->kind == J_FLOAT ? v->f : (double)v->i;
}

int cb_jis_seq(const struct jv *v)
{
    return v->kind == J_LIST || v->kind == J_TUPLE;
}

int cb_jis(const struct jv *v, const char *text)
{
    const size_t n = strlen(text);

    return v->kind == J_STR && v->str.n == n && memcmp(v->str.s, text, n) == 0;
}

static int same_items(struct jrun *r, const struct jv *a, const struct jv *b, int *yes)
{
    *yes = a->list->n == b->list->n;
    for (size_t i = 0; *yes && i < a->list->n; i++)
        TRY(cb_jequal(r, &a->list->at[i], &b->list->at[i], yes));
    return CB_OK;
}

static int same_pairs(struct jrun *r, const struct jv *a, const struct jv *b, int *yes)
{
    *yes = a->dict->n == b->dict->n;
    for (size_t i = 0; *yes && i < a->dict->n; i++) {
        const struct jv *other;
        TRY(cb_jdict_get(r, b->dict, &a->dict->at[i].key, &other));
        *yes = other != NULL;
        if (other)
            TRY(cb_jequal(r, &a->dict->at[i].value, other, yes));
    }
    return CB_OK;
}

static int same_scalar(const struct jv *a, const struct jv *b)
{
    if (a->kind == J_FLOAT || b->kind == J_FLOAT)
        return !(cb_jnum(a) < cb_jnum(b)) && !(cb_jnum(a) > cb_jnum(b)) && cb_jnum(a) == cb_jnum(a);
    return a->i == b->i;
}

int cb_jequal(struct jrun *r, const struct jv *a, const struct jv *b, int *yes)
{
    int rc = CB_OK;

    TRY(cb_jstep(r, 0));
    *yes = 0;
    if (cb_jis_num(a) && cb_jis_num(b)) {
        *yes = same_scalar(a, b);
        return CB_OK;
    }
    if (a->kind != b->kind)
        return CB_OK;
    switch (a->kind) {
    case J_UNDEFINED:
    case J_NONE:
        *yes = 1;
        return CB_OK;
    case J_STR:
        *yes = a->str.n == b->str.n && memcmp(a->str.s, b->str.s, a->str.n) == 0;
        return *yes ? cb_jstep(r, a->str.n) : CB_OK;
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
        TRY(cb_jdeeper(r));
        rc = a->kind == J_DICT ? same_pairs(r, a, b, yes) : same_items(r, a, b, yes);
        r->depth--;
        return rc;
    case J_NAMESPACE:
        *yes = a->dict == b->dict;
        return CB_OK;
    default:
        *yes = a->func == b->func;
        return CB_OK;
    }
}

static int compare_lists(struct jrun *r, const struct jlist *a, const struct jlist *b, int *order)
{
    const size_t n = a->n < b->n ? a->n : b->n;

    for (size_t i = 0; i < n; i++) {
        TRY(cb_jcompare(r, &a->at[i], &b->at[i], order));
        if (*order)
            return CB_OK;
    }
    *order = (a->n > b->n) - (a->n < b->n);
    return CB_OK;
}

int cb_jcompare(struct jrun *r, const struct jv *a, const struct jv *b, int *order)
{
    TRY(cb_jstep(r, 0));
    if (cb_jis_num(a) && cb_jis_num(b)) {
        if (a->kind == J_FLOAT || b->kind == J_FLOAT)
            *order = (cb_jnum(a) > cb_jnum(b)) - (cb_jnum(a) < cb_jnum(b));
        else
            *order = (a->i > b->i) - (a->i < b->i);
        return CB_OK;
    }
    if (a->kind == J_STR && b->kind == J_STR) { /* UTF-8 sorts as its code points do */
        const size_t n = a->str.n < b->str.n ? a->str.n : b->str.n;
        *order = memcmp(a->str.s, b->str.s, n);
        if (!*order)
            *order = (a->str.n > b->str.n) - (a->str.n < b->str.n);
        return cb_jstep(r, n);
    }
    if (cb_jis_seq(a) && a->kind == b->kind) {
        int rc;
        TRY(cb_jdeeper(r));
        rc = compare_lists(r, a->list, b->list, order);
        r->depth--;
        return rc;
    }
    return cb_jfail(r, "%s and %s have no order", cb_jkind_name(a), cb_jkind_name(b));
}

int cb_jcontains(struct jrun *r, const struct jv *all, const struct jv *v, int *yes)
{
    const struct jv *found;

    *yes = 0;
    switch (all->kind) {
    case J_UNDEFINED:
        return CB_OK;
    case J_STR:
        if (v->kind != J_STR)
            return cb_jfail(r, "a %s cannot be part of a text", cb_jkind_name(v));
        *yes = cb_jfind(&all->str, 0, all->str.n, &v->str) >= 0;
        return cb_jstep(r, all->str.n);
    case J_LIST:
    case J_TUPLE:
        for (size_t i = 0; !*yes && i < all->list->n; i++)
            TRY(cb_jequal(r, &all->list->at[i], v, yes));
        return CB_OK;
    case J_DICT:
        TRY(cb_jdict_get(r, all->dict, v, &found));
        *yes = found != NULL;
        return CB_OK;
    default:
        return cb_jfail(r, "a %s has no elements", cb_jkind_name(all));
    }
}

int cb_jitems(struct jrun *r, const struct jv *v, struct jv *list)
{
    if (cb_jis_seq(v)) {
        *list = *v;
        list->kind = J_LIST;
        return CB_OK;
    }
    TRY(cb_jlist_new(r, 0, list));
    switch (v->kind) {
    case J_UNDEFINED:
        return CB_OK;
    case J_DICT:
        for (size_t i = 0; i < v->dict->n; i++)
            TRY(cb_jlist_add(r, list, &v->dict->at[i].key));
        return CB_OK;
    case J_STR:
        for (size_t i = 0, n; i < v->str.n; i += n) {
            n = cb_jchar(&v->str, i);
            const struct jv c = cb_jslice(v->str, i, i + n);
            TRY(cb_jlist_add(r, list, &c));
        }
        return CB_OK;
    default:
        return cb_jfail(r, "a %s has no elements", cb_jkind_name(v));
    }
}

int cb_jlength(struct jrun *r, const struct jv *v, int64_t *n)
{
    switch (v->kind) {
    case J_UNDEFINED:
        *n = 0;
        return CB_OK;
    case J_STR:
        *n = (int64_t)cb_jchars(v->str.s, v->str.n);
        return cb_jstep(r, v->str.n);
    case J_LIST:
    case J_TUPLE:
        *n = (int64_t)v->list->n;
        return CB_OK;
    case J_DICT:
        *n = (int64_t)v->dict->n;
        return CB_OK;
    default:
        return cb_jfail(r, "a %s has no length", cb_jkind_name(v));
    }
}
