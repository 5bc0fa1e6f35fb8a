/* SPDX-License-Identifier: MIT */
/* keep.c - choosing the slots to keep, shared by methods. */
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/ints.h"
#include "base/topk_heap.h"
#include "policy.h"

int cb_keep_ends(int n, int sink, int recent, int *out)
{
    int m = 0;
    for (int i = 0; i < n; i++) {
        if (i >= sink && i < n - recent)
            i = n - recent;
        if (i < n)
            out[m++] = i;
    }
    return m;
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

int cb_keep_top(const float *s, const float *raw, int n, int k, int sink, int recent, int *out)
{
    const int from = max_int(0, min_int(sink, n)), to = max_int(from, min_int(n - recent, n));
    const int ends = from + n - to, others = min_int(k - ends, to - from);
    struct topk_item *best;
    int m = 0;

    for (int i = 0; i < n; i++)
        if (i < from || i >= to)
            out[m++] = i;
    if (others > 0) {
        if (!(best = cb_calloc((size_t)others, sizeof *best)))
            return CB_ENOMEM;
        cb_topk_heap(s + from, raw ? raw + from : NULL, to - from, others, best);
        for (int i = 0; i < others; i++)
            out[m++] = from + best[i].i;
        free(best);
    }
    qsort(out, (size_t)m, sizeof *out, ascending);
    return m;
}

int cb_keep_budget(double budget, int n)
{
    const double b = budget < 1 ? floor(budget * n) : budget;
    return b < 1 ? 1 : b > 1e9 ? 1000000000 : (int)b;
}

int cb_keep_part(double x, int of)
{
    const double n = x < 1 && x > 0 ? fmax(1, floor(x * of)) : x;
    return n < of ? (int)n : of;
}

int cb_keep_slots(double budget, int n_prompt, int n_gen, int grow)
{
    const int keep = cb_keep_budget(budget, n_prompt), n = n_prompt + n_gen;
    if (grow)
        return (n_prompt < keep ? n_prompt : keep) + n_gen;
    return n < keep ? n : keep;
}

/* ---- an eviction by scores ---- */

enum { LANES = 8 };

/* The least of n numbers, in lanes so that it vectorises */
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

/* The worst slot of from..to-1; of equal ones the last, because cb_keep_top() keeps the first. */
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
    int *tmp = cb_evict_tmp(e), m;

    if (n == k + 1 && sink < n - recent)
        return cb_evict_drop(e, kv, worst(s, raw, sink, n - recent));
    m = cb_keep_top(s, raw, n, k, sink, recent, tmp);
    return m < 0 ? m : cb_evict_keep(e, kv, tmp, m);
}

/* ---- the votes of an observation window ---- */

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

int cb_evict_keep_votes(struct eviction *e, const struct scores *s, int k, int sink, int window,
                        double floor)
{
    window = window < k ? window : k; /* a window longer than the budget: its last tokens */
    sink = sink < k ? sink : k - 1;
    if (floor < 1 && sink + window <= k)
        return keep_rivals(e, s, k, sink, window, floor);
    for (int h = 0; h < cb_evict_heads(e); h++) {
        const size_t row = (size_t)h * (size_t)s->stride;
        const int n = cb_evict_len(e, h);
        if (n > k)
            TRY(cb_evict_keep_top(e, h, s->s + row, s->raw + row, n, k, sink, window));
    }
    return CB_OK;
}

int cb_evict_drop_tail(struct eviction *e, int tail, int limit)
{
    int *tmp = cb_evict_tmp(e);

    for (int h = 0; tail > limit && h < cb_evict_heads(e); h++) {
        const int n = cb_evict_len(e, h), first = n - tail;
        int m = 0;
        for (int i = 0; i < n; i++)
            if (i < first || i >= n - limit)
                tmp[m++] = i;
        TRY(cb_evict_keep(e, h, tmp, m));
    }
    return CB_OK;
}
