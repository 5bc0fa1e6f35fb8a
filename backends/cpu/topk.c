/* SPDX-License-Identifier: MIT */
/* topk.c - the k largest of n floats in O(n): the key of the k-th is found by counting, first by its
 * upper 11 bits, then among those that share them. */
#include <string.h>

#include "kern_vec.h"

enum { BITS = 11, BUCKETS = 1 << BITS };

/* An unsigned number that orders as the float does; -0 and 0 are equal. */
static inline uint32_t order_key(float x)
{
    uint32_t u;

    x += 0.0f;
    memcpy(&u, &x, sizeof u);
    return u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
}

/* Of the counts, from the top: the bucket in which the k-th falls; *k becomes its rank in there. */
static uint32_t bucket_of(const uint32_t *count, int *k)
{
    uint32_t b = BUCKETS - 1;

    while (count[b] < (uint32_t)*k)
        *k -= (int)count[b--];
    return b;
}

/* The key of the k-th largest; *n_equal: how many entries with that very key belong to the k. */
static uint32_t kth_key(const float *x, int n, int k, uint32_t *cand, int *n_equal)
{
    uint32_t count[BUCKETS] = { 0 }, top, mid, low;
    int m = 0;

    for (int i = 0; i < n; i++)
        count[order_key(x[i]) >> 21]++;
    top = bucket_of(count, &k);
    for (int i = 0; i < n; i++) {
        const uint32_t key = order_key(x[i]);
        cand[m] = key;
        m += key >> 21 == top;
    }
    memset(count, 0, sizeof count);
    for (int i = 0; i < m; i++)
        count[cand[i] >> 10 & (BUCKETS - 1)]++;
    mid = bucket_of(count, &k);
    memset(count, 0, sizeof count);
    for (int i = 0; i < m; i++)
        if ((cand[i] >> 10 & (BUCKETS - 1)) == mid)
            count[cand[i] & 1023]++;
    low = bucket_of(count, &k);
    *n_equal = k;
    return top << 21 | mid << 10 | low;
}

size_t cb_cpu_topk_scratch(int n_ctx)
{
    return ((size_t)n_ctx + 1) * sizeof(uint32_t);
}

/* The candidates lie in the caller's scratch. */
void cb_cpu_topk(struct device *d, const float *x, int n, int k, int32_t *idx)
{
    uint32_t kth;
    int n_equal, out = 0;

    if (k <= 0)
        return;
    kth = kth_key(x, n, k, cb_par_scratch(d->par, 0), &n_equal);
    for (int i = 0; out < k; i++) {
        const uint32_t key = order_key(x[i]);
        const int equal = key == kth && n_equal > 0;
        idx[out] = i;
        out += key > kth || equal;
        n_equal -= equal;
    }
}
