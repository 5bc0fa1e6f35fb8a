/* SPDX-License-Identifier: MIT */
/* evict.c - what a policy may do to a layer's slots: keep and merge. The change is collected,
 * checked, and applied at once, so that every weight refers to the values before it. */
#include "evict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "nearest_key.h"

enum { LANES = 8 };

struct merge_item {
    struct merge m;
    int kv, order;
};

struct eviction {
    struct cb_session *s;
    int l, prompt;
    int *tmp;  /* [n_ctx] */
    int *keep; /* [n_kv][n_ctx] */
    int *n;    /* [n_kv] slots to keep; -1 = all */
    int *drop; /* [n_kv] the slot that all but are kept, not in a list yet; -1: keep is the list */
    struct merge_item *merge;
    int n_merge, cap_merge;
    float *score;     /* [n_ctx] */
    float *sum, *row; /* [hd] each */
};

int cb_evict_new(struct cb_session *s, struct eviction **out)
{
    const struct hparams *hp = &s->model->hp;
    struct eviction *e = cb_calloc(1, sizeof *e);

    if (!e)
        return CB_ENOMEM;
    *out = e;
    e->s = s;
    e->tmp = cb_alloc_aligned((size_t)s->n_ctx, sizeof *e->tmp);
    e->keep = cb_alloc_aligned((size_t)hp->n_kv * (size_t)s->n_ctx, sizeof *e->keep);
    e->score = cb_alloc_aligned((size_t)s->n_ctx, sizeof *e->score);
    e->n = cb_calloc((size_t)hp->n_kv, sizeof *e->n);
    e->drop = cb_calloc((size_t)hp->n_kv, sizeof *e->drop);
    e->sum = cb_calloc((size_t)hp->hd, sizeof *e->sum);
    e->row = cb_calloc((size_t)hp->hd, sizeof *e->row);
    return e->tmp && e->keep && e->score && e->n && e->drop && e->sum && e->row ? CB_OK : CB_ENOMEM;
}

size_t cb_evict_bytes(const struct cb_session *s, int n_most)
{
    const struct hparams *hp = &s->model->hp;
    return (size_t)n_most * ((size_t)hp->n_kv + 2) * sizeof(int) +
           2 * (size_t)hp->hd * sizeof(float);
}

void cb_evict_free(struct eviction *e)
{
    if (!e)
        return;
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
    for (int h = 0; h < e->s->model->hp.n_kv; h++)
        e->n[h] = e->drop[h] = -1;
}

int cb_evict_at_prompt(const struct eviction *e)
{
    return e->prompt;
}

int *cb_evict_tmp(struct eviction *e)
{
    return e->tmp;
}

float *cb_evict_row(struct eviction *e)
{
    return e->score;
}

int cb_evict_keep(struct eviction *e, int kv, const int *slot, int n)
{
    const int len = e->s->store[e->l].n[kv];
    int *keep = e->keep + (size_t)kv * (size_t)e->s->n_ctx;

    for (int i = 0; i < n; i++)
        if (slot[i] < 0 || slot[i] >= len || (i && slot[i] <= slot[i - 1]))
            return cb_fail(CB_EARG, "policy %s: layer %d: slot %d of %d out of range or order",
                           e->s->policy->m->name, e->l, slot[i], len);
    memcpy(keep, slot, (size_t)n * sizeof *keep);
    e->n[kv] = n;
    e->drop[kv] = -1;
    return CB_OK;
}

int cb_evict_keep_all_heads(struct eviction *e, const int *slot, int n)
{
    for (int h = 0; h < e->s->model->hp.n_kv; h++)
        TRY(cb_evict_keep(e, h, slot, n));
    return CB_OK;
}

int cb_evict_drop(struct eviction *e, int kv, int slot)
{
    const int len = e->s->store[e->l].n[kv];

    if (slot < 0 || slot >= len)
        return cb_fail(CB_EARG, "policy %s: layer %d: slot %d of %d out of range",
                       e->s->policy->m->name, e->l, slot, len);
    e->n[kv] = len - 1;
    e->drop[kv] = slot;
    return CB_OK;
}

/* The slots of a head that are to stay, as a list */
static const int *kept(const struct eviction *e, int kv)
{
    int *keep = e->keep + (size_t)kv * (size_t)e->s->n_ctx;

    for (int i = 0; e->drop[kv] >= 0 && i < e->n[kv]; i++)
        keep[i] = i + (i >= e->drop[kv]);
    return keep;
}

int cb_evict_nearest(struct eviction *e, int kv, const struct near_slot **out)
{
    if (e->drop[kv] >= 0)
        return cb_nearest_key_one(e->s, e->l, kv, e->drop[kv], out);
    return cb_nearest_key_all(e->s, e->l, kv, kept(e, kv), e->n[kv], out);
}

/* The least of n numbers, in lanes that a vector takes */
static float least(const float *x, int n)
{
    float lane[LANES], min;
    int i = 0;

    for (int j = 0; j < LANES; j++)
        lane[j] = INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] = x[i + j] < lane[j] ? x[i + j] : lane[j];
    min = lane[0];
    for (int j = 1; j < LANES; j++)
        min = lane[j] < min ? lane[j] : min;
    for (; i < n; i++)
        min = x[i] < min ? x[i] : min;
    return min;
}

/* The worst of from..to-1; of equals the last, as cb_keep_top() keeps the first. */
static int worst(const float *s, const float *raw, int from, int to)
{
    const float min = least(s + from, to - from);
    int w = -1;

    for (int i = to - 1; i >= from; i--)
        if (!(s[i] > min) && (w < 0 || (raw && raw[i] < raw[w])))
            w = i;
    return w;
}

int cb_evict_keep_top(struct eviction *e, int kv, const float *s, const float *raw, int n, int k,
                      int sink, int recent)
{
    int m;

    if (n == k + 1 && sink < n - recent)
        return cb_evict_drop(e, kv, worst(s, raw, sink, n - recent));
    m = cb_keep_top(s, raw, n, k, sink, recent, e->tmp);
    return m < 0 ? m : cb_evict_keep(e, kv, e->tmp, m);
}

int cb_evict_keep_votes(struct eviction *e, const struct scores *s, int k, int sink, int window)
{
    for (int h = 0; h < e->s->model->hp.n_kv; h++) {
        const size_t row = (size_t)h * (size_t)s->stride;
        const int n = e->s->store[e->l].n[h];
        if (n > k) /* a window longer than the budget: its last tokens */
            TRY(cb_evict_keep_top(e, h, s->s + row, s->raw + row, n, k, sink < k ? sink : k - 1,
                                  window < k ? window : k));
    }
    return CB_OK;
}

int cb_evict_drop_tail(struct eviction *e, int n, int limit, int first)
{
    int m = 0;

    if (n <= limit)
        return CB_OK;
    for (int i = 0; i < n; i++)
        if (i < first || i >= first + n - limit)
            e->tmp[m++] = i;
    return cb_evict_keep_all_heads(e, e->tmp, m);
}

int cb_evict_merge(struct eviction *e, int kv, const struct merge *m)
{
    const int len = e->s->store[e->l].n[kv];

    if (m->to < 0 || m->to >= len || m->from < 0 || m->from >= len || m->to == m->from)
        return cb_fail(CB_EARG, "policy %s: layer %d: merge of slot %d into %d of %d",
                       e->s->policy->m->name, e->l, m->from, m->to, len);
    if (e->n_merge == e->cap_merge) {
        const int cap = e->cap_merge ? 2 * e->cap_merge : 64;
        struct merge_item *x = cb_realloc(e->merge, (size_t)cap, sizeof *x);
        if (!x)
            return CB_ENOMEM;
        e->merge = x;
        e->cap_merge = cap;
    }
    e->merge[e->n_merge] = (struct merge_item){ *m, kv, e->n_merge };
    e->n_merge++;
    return CB_OK;
}

static int by_target(const void *pa, const void *pb)
{
    const struct merge_item *a = pa, *b = pb;
    if (a->kv != b->kv)
        return a->kv - b->kv;
    return a->m.to != b->m.to ? a->m.to - b->m.to : a->order - b->order;
}

/* The n merges into one slot, for its key (v = 0) or value (v = 1). What is merged is dropped
 * afterwards, and nothing is merged into it, so its stored form is still the one before the edit.
 */
static void merge_one(struct eviction *e, const struct merge_item *x, int n, int v)
{
    const struct policy *p = e->s->policy;
    struct store *st = &e->s->store[e->l];
    const float w_to = x[n - 1].m.w_to;
    float total = w_to;

    cb_view_kv(p, e->l, x->kv, v, x->m.to, e->sum);
    for (int d = 0; d < st->hd; d++)
        e->sum[d] *= w_to;
    for (int i = 0; i < n; i++) {
        cb_view_kv(p, e->l, x->kv, v, x[i].m.from, e->row);
        for (int d = 0; d < st->hd; d++)
            e->sum[d] += x[i].m.w_from * e->row[d];
        total += x[i].m.part;
    }
    for (int d = 0; d < st->hd; d++)
        e->sum[d] /= total;
    cb_store_set(st, e->s->dev, x->kv, v, x->m.to, e->sum);
    if (!v)
        cb_nearest_key_forget(e->s, e->l, x->kv, x->m.to);
}

int cb_evict_apply(struct eviction *e)
{
    if (e->n_merge) /* there may be no list yet */
        qsort(e->merge, (size_t)e->n_merge, sizeof *e->merge, by_target);
    for (int i = 0, n; i < e->n_merge; i += n) {
        const struct merge_item *x = &e->merge[i];
        for (n = 1; i + n < e->n_merge && x[n].kv == x->kv && x[n].m.to == x->m.to;)
            n++;
        for (int v = x[n - 1].m.values; v < 2; v++)
            merge_one(e, x, n, v);
    }
    for (int h = 0; h < e->s->model->hp.n_kv; h++) {
        struct store *st = &e->s->store[e->l];
        if (e->drop[h] >= 0 && !st->kivi)
            TRY(cb_store_drop(st, h, e->drop[h]));
        else if (e->n[h] >= 0)
            TRY(cb_store_keep(st, h, kept(e, h), e->n[h]));
    }
    return CB_OK;
}

/* ---- the view that hooks have of a layer ---- */

int cb_view_len(const struct policy *p, int l, int kv)
{
    return p->session->store[l].n[kv];
}

int cb_view_seen(const struct policy *p)
{
    return p->session->n_seen + p->session->n_feed;
}

int cb_view_fed(const struct policy *p)
{
    return p->session->n_feed;
}

const int32_t *cb_view_pos(const struct policy *p, int l, int kv)
{
    const struct store *st = &p->session->store[l];
    return st->pos ? st->pos + (size_t)kv * (size_t)st->cap : NULL;
}

float *cb_view_col(struct policy *p, int l, int kv, int col)
{
    const struct store *st = &p->session->store[l];
    return st->col + ((size_t)kv * (size_t)st->n_col + (size_t)col) * (size_t)st->cap;
}

void cb_view_kv(const struct policy *p, int l, int kv, int v, int slot, float *out)
{
    cb_store_get(&p->session->store[l], p->session->dev, kv, v, slot, out);
}
