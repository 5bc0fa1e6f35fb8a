/* SPDX-License-Identifier: MIT */
/* filters_list.c - filters that take lists: sort, groups, sums, parts. */
#include "filters.h"
#include "jprint.h"
#include "jsort.h"
#include "members.h"
#include "str_methods.h"

#define FILTER(name)                                                                               \
    static int name(struct jrun *r, const struct jv *v, const struct jargs *a, struct jv *out)

/* What an element is compared by: itself or its attribute, without case unless asked otherwise */
static int key_of(struct jrun *r, const struct jv *v, const struct jv *attribute, int with_case,
                  struct jv *out)
{
    struct jv at = *v;

    if (attribute && attribute->kind != J_NONE)
        TRY(cb_jpath(r, v, attribute, &at));
    if (!with_case)
        return cb_jlower(r, &at, out);
    *out = at;
    return CB_OK;
}

/* A copy of the elements, and the key of each */
static int keyed(struct jrun *r, const struct jv *v, const struct jv *attribute, int with_case,
                 struct jv *list, struct jv *key)
{
    struct jv items;

    TRY(cb_jitems(r, v, &items));
    TRY(cb_jlist_new(r, items.list->n, list));
    TRY(cb_jlist_new(r, items.list->n, key));
    for (size_t i = 0; i < items.list->n; i++) {
        struct jv k;
        TRY(key_of(r, &items.list->at[i], attribute, with_case, &k));
        TRY(cb_jlist_add(r, list, &items.list->at[i]));
        TRY(cb_jlist_add(r, key, &k));
    }
    return CB_OK;
}

FILTER(first)
{
    struct jv list;

    (void)a;
    TRY(cb_jitems(r, v, &list));
    *out = list.list->n ? list.list->at[0] : cb_jundef("first");
    return CB_OK;
}

FILTER(last)
{
    struct jv list;

    (void)a;
    TRY(cb_jitems(r, v, &list));
    *out = list.list->n ? list.list->at[list.list->n - 1] : cb_jundef("last");
    return CB_OK;
}

FILTER(list)
{
    (void)a;
    return cb_jitems(r, v, out);
}

FILTER(reverse)
{
    const struct jstr none = cb_jtext("").str;
    struct jv items;

    (void)a;
    TRY(cb_jitems(r, v, &items));
    TRY(cb_jlist_new(r, items.list->n, out));
    for (size_t i = items.list->n; i-- > 0;)
        TRY(cb_jlist_add(r, out, &items.list->at[i]));
    return v->kind == J_STR ? cb_jjoin(r, &none, out->list, 1, out) : CB_OK;
}

FILTER(join)
{
    const struct jv *attribute = cb_jarg(a, 1, "attribute"), *gap = cb_jarg(a, 0, "d");
    struct jv list, keys, text = cb_jtext("");

    if (gap)
        TRY(cb_jto_str(r, gap, &text));
    TRY(cb_jitems(r, v, &list));
    if (attribute)
        TRY(keyed(r, v, attribute, 1, &keys, &list));
    return cb_jjoin(r, &text.str, list.list, 1, out);
}

FILTER(sort)
{
    const int reverse = cb_jarg_true(a, 0, "reverse", 0);
    const int with_case = cb_jarg_true(a, 1, "case_sensitive", 0);
    struct jv key;

    TRY(keyed(r, v, cb_jarg(a, 2, "attribute"), with_case, out, &key));
    return cb_jsort(r, out->list->at, key.list->at, out->list->n, reverse);
}

FILTER(dictsort)
{
    const int with_case = cb_jarg_true(a, 0, "case_sensitive", 0);
    const struct jv *by = cb_jarg(a, 1, "by");
    const struct jv column = cb_jint(by && cb_jis(by, "value"));
    struct jv pairs, key;

    if (v->kind != J_DICT)
        return cb_jfail(r, "dictsort: a %s is not a dict", cb_jkind_name(v));
    TRY(cb_jdict_items(r, v->dict, &pairs));
    TRY(keyed(r, &pairs, &column, with_case, out, &key));
    return cb_jsort(r, out->list->at, key.list->at, out->list->n, cb_jarg_true(a, 2, "reverse", 0));
}

FILTER(unique)
{
    const int with_case = cb_jarg_true(a, 0, "case_sensitive", 0);
    struct jv items, key, seen;

    TRY(keyed(r, v, cb_jarg(a, 1, "attribute"), with_case, &items, &key));
    TRY(cb_jlist_new(r, 0, out));
    TRY(cb_jlist_new(r, 0, &seen));
    for (size_t i = 0; i < items.list->n; i++) {
        int yes;
        TRY(cb_jcontains(r, &seen, &key.list->at[i], &yes));
        if (yes)
            continue;
        TRY(cb_jlist_add(r, &seen, &key.list->at[i]));
        TRY(cb_jlist_add(r, out, &items.list->at[i]));
    }
    return CB_OK;
}

static int extreme(struct jrun *r, const struct jv *v, const struct jargs *a, int sign,
                   struct jv *out)
{
    const int with_case = cb_jarg_true(a, 0, "case_sensitive", 0);
    struct jv items, key;
    size_t best = 0;

    TRY(keyed(r, v, cb_jarg(a, 1, "attribute"), with_case, &items, &key));
    for (size_t i = 1; i < items.list->n; i++) {
        int order;
        TRY(cb_jcompare(r, &key.list->at[i], &key.list->at[best], &order));
        if (sign * order > 0)
            best = i;
    }
    *out = items.list->n ? items.list->at[best] : cb_jundef("the least or greatest");
    return CB_OK;
}

FILTER(min)
{
    return extreme(r, v, a, -1, out);
}

FILTER(max)
{
    return extreme(r, v, a, 1, out);
}

FILTER(sum)
{
    const struct jv *attribute = cb_jarg(a, 0, "attribute"), *start = cb_jarg(a, 1, "start");
    struct jv items, key;

    TRY(keyed(r, v, attribute, 1, &items, &key));
    *out = start ? *start : cb_jint(0);
    for (size_t i = 0; i < key.list->n; i++) {
        const struct jv *x = &key.list->at[i];
        if (!cb_jis_num(x) || !cb_jis_num(out))
            return cb_jfail(r, "sum: a %s is not a number", cb_jkind_name(x));
        if (x->kind == J_FLOAT || out->kind == J_FLOAT)
            *out = cb_jfloat(cb_jnum(out) + cb_jnum(x));
        else if (__builtin_add_overflow(out->i, x->i, &out->i))
            return cb_jfail(r, "sum: the number is too large");
    }
    return CB_OK;
}

FILTER(groupby)
{
    const struct jv *attribute = cb_jarg(a, 0, "attribute"), *otherwise = cb_jarg(a, 1, "default");
    const int with_case = cb_jarg_true(a, 2, "case_sensitive", 0);
    struct jv items, key, group = { 0 }, pair;

    if (!attribute)
        return cb_jfail(r, "groupby lacks its attribute");
    TRY(keyed(r, v, attribute, with_case, &items, &key));
    for (size_t i = 0; i < key.list->n; i++)
        if (key.list->at[i].kind == J_UNDEFINED && otherwise)
            key.list->at[i] = *otherwise;
    TRY(cb_jsort(r, items.list->at, key.list->at, items.list->n, 0));
    TRY(cb_jlist_new(r, 0, out));
    for (size_t i = 0; i < items.list->n; i++) {
        int same = 0;
        if (i)
            TRY(cb_jequal(r, &key.list->at[i - 1], &key.list->at[i], &same));
        if (!same) {
            struct jv shown;
            TRY(key_of(r, &items.list->at[i], attribute, 1, &shown));
            if (shown.kind == J_UNDEFINED)
                shown = key.list->at[i];
            TRY(cb_jlist_new(r, 0, &group));
            TRY(cb_jtuple2(r, &shown, &group, &pair));
            TRY(cb_jlist_add(r, out, &pair));
        }
        TRY(cb_jlist_add(r, &group, &items.list->at[i]));
    }
    return CB_OK;
}

static int positive(struct jrun *r, const struct jargs *a, const char *name, int64_t *n)
{
    *n = 0;
    TRY(cb_jarg_int(r, a, 0, name, n));
    return *n > 0 && *n <= 1000000 ? CB_OK : cb_jfail(r, "%s must be at least 1", name);
}

FILTER(batch)
{
    const struct jv *fill = cb_jarg(a, 1, "fill_with");
    struct jv items, part = { 0 };
    int64_t n;

    TRY(positive(r, a, "linecount", &n));
    TRY(cb_jitems(r, v, &items));
    TRY(cb_jlist_new(r, 0, out));
    for (size_t i = 0; i < items.list->n; i++) {
        if (i % (size_t)n == 0) {
            TRY(cb_jlist_new(r, 0, &part));
            TRY(cb_jlist_add(r, out, &part));
        }
        TRY(cb_jlist_add(r, &part, &items.list->at[i]));
    }
    while (fill && items.list->n && part.list->n < (size_t)n)
        TRY(cb_jlist_add(r, &part, fill));
    return CB_OK;
}

FILTER(slice)
{
    const struct jv *fill = cb_jarg(a, 1, "fill_with");
    struct jv items;
    size_t at = 0, each, more;
    int64_t n;

    TRY(positive(r, a, "slices", &n));
    TRY(cb_jitems(r, v, &items));
    TRY(cb_jlist_new(r, 0, out));
    each = items.list->n / (size_t)n;
    more = items.list->n % (size_t)n;
    for (size_t i = 0; i < (size_t)n; i++) {
        struct jv part;
        TRY(cb_jlist_new(r, 0, &part));
        for (size_t k = 0; k < each + (i < more); k++)
            TRY(cb_jlist_add(r, &part, &items.list->at[at++]));
        if (fill && i >= more)
            TRY(cb_jlist_add(r, &part, fill));
        TRY(cb_jlist_add(r, out, &part));
    }
    return CB_OK;
}

/* ---- filters and tests of each element ---- */

/* The element's attribute, where the filter is of attributes */
static int pick(struct jrun *r, const struct jv *item, const struct jargs *a, int by_attribute,
                struct jv *out)
{
    *out = *item;
    return by_attribute ? cb_jpath(r, item, &a->at[0], out) : CB_OK;
}

/* a: [attribute,] test, its arguments */
static int choose(struct jrun *r, const struct jv *v, const struct jargs *a, int by_attribute,
                  int want, struct jv *out)
{
    const struct jargs rest = cb_jargs_from(a, (size_t)by_attribute);
    const struct jargs args = cb_jargs_from(&rest, 1);
    struct jv items;
    jfn test = NULL;

    if (by_attribute && !a->n)
        return cb_jfail(r, "selectattr lacks its attribute");
    if (rest.n && rest.at[0].kind == J_STR)
        test = cb_jtest(&rest.at[0].str);
    if (rest.n && !test)
        return cb_jfail(r, "no test has the name that select was given");
    TRY(cb_jitems(r, v, &items));
    TRY(cb_jlist_new(r, 0, out));
    for (size_t i = 0; i < items.list->n; i++) {
        struct jv x, yes;
        TRY(pick(r, &items.list->at[i], a, by_attribute, &x));
        yes = x;
        if (test)
            TRY(test(r, &x, &args, &yes));
        if (cb_jtrue(&yes) == want)
            TRY(cb_jlist_add(r, out, &items.list->at[i]));
    }
    return CB_OK;
}

FILTER(select)
{
    return choose(r, v, a, 0, 1, out);
}

FILTER(reject)
{
    return choose(r, v, a, 0, 0, out);
}

FILTER(selectattr)
{
    return choose(r, v, a, 1, 1, out);
}

FILTER(rejectattr)
{
    return choose(r, v, a, 1, 0, out);
}

static const struct jentry filters[] = {
    { "first", first },
    { "last", last },
    { "list", list },
    { "reverse", reverse },
    { "join", join },
    { "sort", sort },
    { "dictsort", dictsort },
    { "unique", unique },
    { "min", min },
    { "max", max },
    { "sum", sum },
    { "groupby", groupby },
    { "batch", batch },
    { "slice", slice },
    { "select", select },
    { "reject", reject },
    { "selectattr", selectattr },
    { "rejectattr", rejectattr },
};

jfn cb_jlist_filter(const struct jstr *name)
{
    return cb_jentry(filters, sizeof filters / sizeof *filters, name);
}
