/* SPDX-License-Identifier: MIT */
/* evict.c - a change to one layer's slots: which are kept, which are merged. Requests are
 * collected, checked, and applied together, so that every weight refers to the values before the
 * change. */
#include "evict.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "nearest_key.h"

_Static_assert((int)CB_EVICT_KEYS <= (int)CB_STORE_MANY, "read at once");

struct merge_item {
    struct merge m;
    int kv, order;
};

struct eviction {
    struct bank *b;
    const char *who;             /* the method's name, for messages */
    struct nearest_key *nearest; /* NULL if the method never merges */
    int l, prompt;
    int *tmp;  /* [n_ctx] */
    int *keep; /* [n_kv][n_ctx] */
    int *n;    /* [n_kv] slots to keep; -1 = all */
    int *drop; /* [n_kv] the only slot to drop, with no list made yet; -1: `keep` is the list */
    struct merge_item *merge;
    int n_merge;
    size_t cap_merge;
    float *score;     /* [n_ctx] */
    float *sum, *row; /* [hd] each */
};

int cb_evict_new(struct bank *b, const char *who, int merge_col, struct eviction **out)
{
    const size_t n_ctx = (size_t)b->n_ctx, n_kv = (size_t)b->n_kv;
    struct eviction *e = cb_calloc(1, sizeof *e);

    if (!e)
        return CB_ENOMEM;
    *out = e;
    e->b = b;
    e->who = who;
    e->tmp = cb_alloc_aligned(n_ctx, sizeof *e->tmp);
    e->keep = cb_alloc_aligned(n_kv * n_ctx, sizeof *e->keep);
    e->score = cb_alloc_aligned(n_ctx, sizeof *e->score);
    e->n = cb_calloc(n_kv, sizeof *e->n);
    e->drop = cb_calloc(n_kv, sizeof *e->drop);
    e->sum = cb_calloc((size_t)b->hd, sizeof *e->sum);
    e->row = cb_calloc((size_t)b->hd, sizeof *e->row);
    if (!e->tmp || !e->keep || !e->score || !e->n || !e->drop || !e->sum || !e->row)
        return CB_ENOMEM;
    return merge_col < 0 ? CB_OK : cb_nearest_key_new(b, merge_col, &e->nearest);
}

size_t cb_evict_bytes(const struct eviction *e, int n_most, int n_kept)
{
    return (size_t)n_most * ((size_t)e->b->n_kv + 2) * sizeof(int) +
           2 * (size_t)e->b->hd * sizeof(float) +
           (e->nearest ? cb_nearest_key_bytes(e->nearest, n_most, n_kept) : 0);
}

void cb_evict_free(struct eviction *e)
{
    if (!e)
        return;
    cb_nearest_key_free(e->nearest);
    free(e->tmp);
    free(e->keep);
    free(e->score);
    free(e->n);
    free(e->drop);
    free(e->merge);
    free(e->sum);
    free(e->row);
    free(e);
}

void cb_evict_begin(struct eviction *e, int l, int prompt)
{
    e->l = l;
    e->prompt = prompt;
    e->n_merge = 0;
    for (int h = 0; h < e->b->n_kv; h++)
        e->n[h] = e->drop[h] = -1;
}

int cb_evict_at_prompt(const struct eviction *e)
{
    return e->prompt;
}

int cb_evict_len(const struct eviction *e, int kv)
{
    return e->b->store[e->l].n[kv];
}

int cb_evict_mean_len(const struct eviction *e)
{
    int64_t sum = 0;

    for (int h = 0; h < e->b->n_kv; h++)
        sum += e->b->store[e->l].n[h];
    return (int)(sum / e->b->n_kv);
}

int cb_evict_heads(const struct eviction *e)
{
    return e->b->n_kv;
}

int *cb_evict_tmp(struct eviction *e)
{
    return e->tmp;
}

float *cb_evict_row(struct eviction *e)
{
    return e->score;
}

void cb_evict_keys(const struct eviction *e, int kv, int from, int n, float *x)
{
    assert(n <= CB_EVICT_KEYS);
    cb_store_get_range(&e->b->store[e->l], e->b->dev, kv, 0, from, n, x);
}

int cb_evict_keep(struct eviction *e, int kv, const int *slot, int n)
{
    const int len = e->b->store[e->l].n[kv];
    int *keep = e->keep + (size_t)kv * (size_t)e->b->n_ctx;

    for (int i = 0; i < n; i++)
        if (slot[i] < 0 || slot[i] >= len || (i && slot[i] <= slot[i - 1]))
            return cb_fail(CB_EARG, "policy %s: layer %d: slot %d of %d out of range or order",
                           e->who, e->l, slot[i], len);
    memcpy(keep, slot, (size_t)n * sizeof *keep);
    e->n[kv] = n;
    e->drop[kv] = -1;
    return CB_OK;
}

int cb_evict_keep_all_heads(struct eviction *e, const int *slot, int n)
{
    for (int h = 0; h < e->b->n_kv; h++)
        TRY(cb_evict_keep(e, h, slot, n));
    return CB_OK;
}

int cb_evict_drop(struct eviction *e, int kv, int slot)
{
    const int len = e->b->store[e->l].n[kv];

    if (slot < 0 || slot >= len)
        return cb_fail(CB_EARG, "policy %s: layer %d: slot %d of %d out of range", e->who, e->l,
                       slot, len);
    e->n[kv] = len - 1;
    e->drop[kv] = slot;
    return CB_OK;
}

/* The list of a head's kept slots */
static const int *kept(const struct eviction *e, int kv)
{
    int *keep = e->keep + (size_t)kv * (size_t)e->b->n_ctx;

    for (int i = 0; e->drop[kv] >= 0 && i < e->n[kv]; i++)
        keep[i] = i + (i >= e->drop[kv]);
    return keep;
}

int cb_evict_nearest(struct eviction *e, int kv, int v, const struct near_slot **out)
{
    if (e->drop[kv] >= 0 && !v)
        return cb_nearest_key_one(e->nearest, e->l, kv, e->drop[kv], out);
    return cb_nearest_key_all(e->nearest, e->l, kv, v, kept(e, kv), e->n[kv], out);
}

int cb_evict_merge(struct eviction *e, int kv, const struct merge *m)
{
    const int len = e->b->store[e->l].n[kv];

    if (m->to < 0 || m->to >= len || m->from < 0 || m->from >= len || m->to == m->from)
        return cb_fail(CB_EARG, "policy %s: layer %d: merge of slot %d into %d of %d", e->who, e->l,
                       m->from, m->to, len);
    TRY(cb_grow(&e->merge, &e->cap_merge, (size_t)e->n_merge + 1, sizeof *e->merge));
    e->merge[e->n_merge] = (struct merge_item){ *m, kv, e->n_merge };
    e->n_merge++;
    return CB_OK;
}

static int by_target(const void *pa, const void *pb)
{
    const struct merge_item *a = pa, *b = pb;
    if (a->kv != b->kv)
        return a->kv - b->kv;
    if (a->m.to != b->m.to)
        return a->m.to - b->m.to;
    return a->m.sides != b->m.sides ? (int)a->m.sides - (int)b->m.sides : a->order - b->order;
}

static int same_target(const struct merge_item *a, const struct merge_item *b)
{
    return a->kv == b->kv && a->m.to == b->m.to && a->m.sides == b->m.sides;
}

/* Applies the n merges into one slot, to its key (v = 0) or value (v = 1). The `from` slots are
 * dropped afterwards and never merged into, so they still hold their values from before the change.
 */
static void merge_one(struct eviction *e, const struct merge_item *x, int n, int v)
{
    struct store *st = &e->b->store[e->l];
    const float w_to = x[n - 1].m.w_to;
    float total = w_to;

    cb_store_get(st, e->b->dev, x->kv, v, x->m.to, e->sum);
    for (int d = 0; d < st->hd; d++)
        e->sum[d] *= w_to;
    for (int i = 0; i < n; i++) {
        cb_store_get(st, e->b->dev, x->kv, v, x[i].m.from, e->row);
        for (int d = 0; d < st->hd; d++)
            e->sum[d] += x[i].m.w_from * e->row[d];
        total += x[i].m.part;
    }
    for (int d = 0; d < st->hd; d++)
        e->sum[d] /= total;
    cb_store_set(st, e->b->dev, x->kv, v, x->m.to, e->sum);
    if (!v)
        cb_nearest_key_forget(e->nearest, e->l, x->kv, x->m.to);
}

int cb_evict_apply(struct eviction *e)
{
    if (e->n_merge) /* merge is NULL before the first merge */
        qsort(e->merge, (size_t)e->n_merge, sizeof *e->merge, by_target);
    for (int i = 0, n; i < e->n_merge; i += n) {
        const struct merge_item *x = &e->merge[i];
        for (n = 1; i + n < e->n_merge && same_target(x, x + n);)
            n++;
        for (int v = 0; v < cb_store_sides(&e->b->store[e->l]); v++)
            if (x->m.sides == SIDES_BOTH || x->m.sides == (v ? SIDES_VALUES : SIDES_KEYS))
                merge_one(e, x, n, v);
    }
    for (int h = 0; h < e->b->n_kv; h++) {
        struct store *st = &e->b->store[e->l];
        if (e->drop[h] >= 0 && !st->kivi)
            TRY(cb_store_drop(st, h, e->drop[h]));
        else if (e->n[h] >= 0)
            TRY(cb_store_keep(st, h, kept(e, h), e->n[h]));
    }
    return CB_OK;
}
