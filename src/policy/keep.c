/* SPDX-License-Identifier: MIT */
/* keep.c - choosing the slots to keep, shared by methods. */
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/ints.h"
#include "base/splitmix.h"
#include "base/topk_heap.h"
#include "policy.h"

double cb_policy_draw(uint64_t seed, int i)
{
    return (double)(cb_splitmix_at(seed, (uint64_t)i) >> 11) * 0x1p-53;
}

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
