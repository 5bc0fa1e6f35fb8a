/* SPDX-License-Identifier: MIT */
/* votes.c - choosing slots by the votes of a prompt's last queries, shared by methods. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "base/topk_heap.h"
#include "policy.h"

struct layer_plan cb_votes_plan(struct policy *p, int group, int window, int pool, int max)
{
    const int heads = p->sh.n_head / p->sh.n_kv, own = group == VOTE_EACH && heads > 1;

    if (own) {
        p->slot_floats = heads; /* the columns of own_slots */
        p->at_most = 1;         /* what query heads choose alike depends on the text */
    }
    return (struct layer_plan){
        .reads = -1,
        .own_slots = own,
        .score = { .when = WHEN_PROMPT,
                   .window = window,
                   .heads = own                 ? EACH_HEAD
                            : group == VOTE_MAX ? PER_KV_HEAD_MAX
                                                : PER_KV_HEAD_MEAN,
                   .pool = pool,
                   .pool_kind = max ? POOL_MAX : POOL_MEAN },
    };
}

/* ---- query heads that choose for themselves ---- */

/* A query head's k slots of the n that its KV head holds; unread[n] becomes 1 for the others. Those
 * that were so before come last. */
static int choose_own(struct eviction *e, const float *s, const float *raw, float *unread, int n,
                      int k, int sink, int window)
{
    float *score = cb_evict_row(e);
    int *slot = cb_evict_tmp(e), own = 0, m;

    for (int i = 0; i < n; i++) {
        own += unread[i] == 0;
        score[i] = unread[i] == 0 ? s[i] : -1;
    }
    if (own <= k)
        return CB_OK;
    m = cb_keep_top(score, raw, n, k, sink, window, slot);
    for (int i = 0; i < n; i++)
        unread[i] = 1;
    for (int i = 0; i < m; i++)
        unread[slot[i]] = 0;
    return m < 0 ? m : CB_OK;
}

/* The slots that any query head of the KV head reads */
static int keep_read(struct policy *p, int l, int kv, struct eviction *e)
{
    const int n = cb_evict_len(e, kv);
    int *slot = cb_evict_tmp(e), m = 0;

    for (int i = 0; i < n; i++) {
        int read = 0;
        for (int a = 0; a < p->slot_floats; a++)
            read |= cb_view_col(p, l, kv, a)[i] == 0;
        slot[m] = i;
        m += read;
    }
    return cb_evict_keep(e, kv, slot, m);
}

static int keep_own(struct policy *p, int l, int kv, struct eviction *e, const struct scores *s,
                    int k, int sink, int window)
{
    for (int a = 0; a < p->slot_floats; a++) {
        const size_t row = (size_t)(kv * p->slot_floats + a) * (size_t)s->stride;
        TRY(choose_own(e, s->s + row, s->raw + row, cb_view_col(p, l, kv, a), cb_evict_len(e, kv),
                       k, sink, window));
    }
    return keep_read(p, l, kv, e);
}

/* ---- KV heads that compete ---- */

/* The candidates of all KV heads: slot by slot, and of a slot head by head */
struct rivals {
    int n;
    float *x, *raw;
    int *head;
};

/* The slots of KV head h that are candidates: first..end-1 */
static int end_of(const struct eviction *e, int h, int sink, int window)
{
    return max_int(sink, cb_evict_len(e, h) - window);
}

/* Gathers the candidates. Each head's own best beat all others. */
static int gather(struct eviction *e, const struct scores *s, int own, int sink, int window,
                  struct rivals *r)
{
    int *tmp = cb_evict_tmp(e), most = 0;

    for (int h = 0; h < cb_evict_heads(e); h++)
        most = max_int(most, end_of(e, h, sink, window));
    for (int j = sink; j < most; j++)
        for (int h = 0; h < cb_evict_heads(e); h++) {
            const size_t at = (size_t)h * (size_t)s->stride + (size_t)j;
            if (j >= end_of(e, h, sink, window))
                continue;
            r->x[r->n] = s->s[at];
            r->raw[r->n] = s->raw[at];
            r->head[r->n++] = h;
        }
    for (int h = 0; own > 0 && h < cb_evict_heads(e); h++) {
        const size_t row = (size_t)h * (size_t)s->stride + (size_t)sink;
        const int m = cb_keep_top(s->s + row, s->raw + row, end_of(e, h, sink, window) - sink, own,
                                  0, 0, tmp);
        if (m < 0)
            return m;
        for (int i = 0, seen = 0, next = 0; i < r->n && next < m; i++)
            if (r->head[i] == h && seen++ == tmp[next]) {
                r->x[i] = INFINITY;
                next++;
            }
    }
    return CB_OK;
}

/* Of `chosen` slots in all heads, the best of all candidates */
static int keep_best(struct eviction *e, const struct scores *s, struct rivals *r, int chosen,
                     int sink, int window)
{
    struct topk_item *best = cb_calloc((size_t)chosen + 1, sizeof *best);
    int err = best ? CB_OK : CB_ENOMEM;

    if (!err)
        cb_topk_heap(r->x, r->raw, r->n, chosen, best);
    for (int h = 0; !err && h < cb_evict_heads(e); h++) {
        const size_t row = (size_t)h * (size_t)s->stride;
        const int n = cb_evict_len(e, h);
        int k = n - (end_of(e, h, sink, window) - sink);
        for (int i = 0; i < chosen; i++)
            k += r->head[best[i].i] == h;
        if (k < n)
            err = cb_evict_keep_top(e, h, s->s + row, s->raw + row, n, k, sink, window);
    }
    free(best);
    return err;
}

/* Ada-KV (Feng et al., 2024): the KV heads of a layer compete for k slots a head. */
static int keep_rivals(struct eviction *e, const struct scores *s, int k, int sink, int window,
                       double floor)
{
    const int each = k - sink - window, n_head = cb_evict_heads(e);
    struct rivals r = { 0 };
    size_t n = 0;
    int err = CB_OK;

    for (int h = 0; h < n_head; h++)
        n += (size_t)(end_of(e, h, sink, window) - sink);
    if (n <= (size_t)n_head * (size_t)each)
        return CB_OK;
    r.x = cb_calloc(n, sizeof *r.x);
    r.raw = cb_calloc(n, sizeof *r.raw);
    r.head = cb_calloc(n, sizeof *r.head);
    err = r.x && r.raw && r.head ? gather(e, s, (int)(floor * each), sink, window, &r) : CB_ENOMEM;
    if (!err)
        err = keep_best(e, s, &r, n_head * each, sink, window);
    free(r.x);
    free(r.raw);
    free(r.head);
    return err;
}

/* ---- all of them ---- */

int cb_evict_keep_votes(struct policy *p, int l, struct eviction *e, const struct scores *s, int k,
                        int sink, int window, double floor)
{
    window = window < k ? window : k; /* a window longer than the budget: its last tokens */
    sink = sink < k ? sink : k - 1;
    if (floor < 1 && sink + window <= k)
        return keep_rivals(e, s, k, sink, window, floor);
    for (int h = 0; h < cb_evict_heads(e); h++) {
        const size_t row = s ? (size_t)h * (size_t)s->stride : 0;
        const int n = cb_evict_len(e, h);
        if (n > k && p->plan[l].own_slots)
            TRY(keep_own(p, l, h, e, s, k, sink, window));
        else if (n > k)
            TRY(cb_evict_keep_top(e, h, s ? s->s + row : cb_view_col(p, l, h, 0),
                                  s ? s->raw + row : cb_view_col(p, l, h, 1), n, k, sink, window));
    }
    return CB_OK;
}

void cb_votes_store(struct policy *p, int l, const struct scores *s)
{
    for (int h = 0; h < p->sh.n_kv; h++) {
        const size_t row = (size_t)h * (size_t)s->stride;
        const size_t bytes = (size_t)cb_view_len(p, l, h) * sizeof(float);
        memcpy(cb_view_col(p, l, h, 0), s->s + row, bytes);
        memcpy(cb_view_col(p, l, h, 1), s->raw + row, bytes);
    }
}

int cb_keep_votes_most(const struct policy *p, int n, int k, int sink, int window)
{
    const int ends = min_int(k, sink + window);
    const int own = p->plan && p->plan[0].own_slots;
    const int64_t most = own ? ends + (int64_t)p->slot_floats * (k - ends) : k;

    return most < n ? (int)most : n;
}
