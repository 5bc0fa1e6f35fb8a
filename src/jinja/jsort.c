/* SPDX-License-Identifier: MIT */
/* jsort.c - stable sorting of values: merge sort, since comparing may fail. */
#include "jsort.h"

#include <string.h>

#include "jcase.h"

struct item {
    struct jv at, key;
};

static int merge(struct jrun *r, const struct item *a, size_t na, const struct item *b, size_t nb,
                 struct item *out, int reverse)
{
    size_t i = 0, j = 0;

    while (i < na && j < nb) {
        int order;
        TRY(cb_jcompare(r, &a[i].key, &b[j].key, &order));
        if (reverse ? order >= 0 : order <= 0)
            *out++ = a[i++];
        else
            *out++ = b[j++];
    }
    if (i < na)
        memcpy(out, a + i, (na - i) * sizeof *a);
    else
        memcpy(out, b + j, (nb - j) * sizeof *b);
    return CB_OK;
}

int cb_jsort(struct jrun *r, struct jv *at, struct jv *key, size_t n, int reverse)
{
    struct item *x, *y, *swap;

    if (n < 2)
        return CB_OK;
    x = cb_jalloc(r, n, sizeof *x);
    y = cb_jalloc(r, n, sizeof *y);
    if (!x || !y)
        return CB_ENOMEM;
    for (size_t i = 0; i < n; i++)
        x[i] = (struct item){ at[i], key[i] };
    for (size_t w = 1; w < n; w *= 2) {
        for (size_t i = 0; i < n; i += 2 * w) {
            const size_t na = n - i < w ? n - i : w;
            const size_t nb = n - i - na < w ? n - i - na : w;
            TRY(merge(r, x + i, na, x + i + na, nb, y + i, reverse));
        }
        swap = x;
        x = y;
        y = swap;
    }
    for (size_t i = 0; i < n; i++) {
        at[i] = x[i].at;
        key[i] = x[i].key;
    }
    return CB_OK;
}

int cb_jsort_pairs(struct jrun *r, const struct jdict *d, const struct jpair **out)
{
    struct jpair *p = cb_jalloc(r, d->n + 1, sizeof *p);
    struct jv *value = cb_jalloc(r, d->n + 1, sizeof *value);
    struct jv *key = cb_jalloc(r, d->n + 1, sizeof *key);

    if (!p || !value || !key)
        return CB_ENOMEM;
    for (size_t i = 0; i < d->n; i++) {
        value[i] = d->at[i].value;
        key[i] = d->at[i].key;
    }
    TRY(cb_jsort(r, value, key, d->n, 0));
    for (size_t i = 0; i < d->n; i++)
        p[i] = (struct jpair){ key[i], value[i] };
    *out = p;
    return CB_OK;
}

int cb_jlower(struct jrun *r, const struct jv *v, struct jv *out)
{
    if (v->kind == J_STR)
        return cb_jcase(r, &v->str, CASE_LOWER, out);
    *out = *v;
    return CB_OK;
}
