/* SPDX-License-Identifier: MIT */
/* topk.c - selection of stored tokens: each token's largest logit over the heads, and the k largest
 * of n floats in O(n). The key of the k-th largest is found by counting, first on its upper 11
 * bits, then among the keys that share them. */
#include <math.h>
#include <string.h>

#include "cpu/kern.h"
#include "cpu/vector/kern_vec.h"

enum { BITS = 11, BUCKETS = 1 << BITS, PIECE = 2048 /* entries an item */ };

/* ---- the best head ---- */

struct heads {
    const struct kern_attn *k;
    const float *logit;
    int stride, n_head, n;
    float *lse; /* [n_head] */
    float *best;
};

static void head_lse(void *ctx, int h, int thread)
{
    const struct heads *y = ctx;

    (void)thread;
    y->lse[h] = y->k->lse(y->logit + (size_t)h * (size_t)y->stride, y->n);
}

static void best_piece(void *ctx, int i, int thread)
{
    const struct heads *y = ctx;
    const int from = i * PIECE, n = y->n - from < PIECE ? y->n - from : PIECE;

    (void)thread;
    for (int j = 0; j < n; j++)
        y->best[from + j] = -INFINITY;
    for (int h = 0; h < y->n_head; h++)
        y->k->raise(y->logit + (size_t)h * (size_t)y->stride + from, n, 0, y->lse[h],
                    y->best + from);
}

void cb_cpu_best_head(struct device *d, const float *logit, int stride, int n_head, int n,
                      int normed, float *best)
{
    struct heads y = { cb_cpu_vec(d)->attn,       logit, stride, n_head, n,
                       cb_par_scratch(d->par, 0), best };

    memset(y.lse, 0, (size_t)n_head * sizeof *y.lse);
    if (normed)
        cb_par_for(d->par, n_head, head_lse, &y);
    cb_par_for(d->par, (n + PIECE - 1) / PIECE, best_piece, &y);
}

void cb_cpu_head_lse(struct device *d, const float *logit, int stride, int n_head, int n,
                     float *lse)
{
    struct heads y = { cb_cpu_vec(d)->attn, logit, stride, n_head, n, lse, NULL };

    for (int h = 0; !n && h < n_head; h++)
        lse[h] = -INFINITY;
    if (n)
        cb_par_for(d->par, n_head, head_lse, &y);
}

/* ---- the k largest ---- */

/* An unsigned integer with the order of the floats; -0 and 0 are equal. */
static inline uint32_t order_key(float x)
{
    uint32_t u;

    x += 0.0f;
    memcpy(&u, &x, sizeof u);
    return u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
}

/* The bucket of the k-th largest, counted from the top; *k becomes its rank within the bucket. */
static uint32_t bucket_of(const uint32_t *count, int *k)
{
    uint32_t b = BUCKETS - 1;

    while (count[b] < (uint32_t)*k)
        *k -= (int)count[b--];
    return b;
}

/* Counts the upper bits of the keys. Neighbours often share a bucket: with four tables an increment
 * need not wait for the one before it. */
static void count_tops(const float *x, int n, uint32_t *count)
{
    uint32_t lane[4][BUCKETS] = { { 0 } };
    int i = 0;

    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            lane[j][order_key(x[i + j]) >> 21]++;
    for (; i < n; i++)
        lane[0][order_key(x[i]) >> 21]++;
    for (int b = 0; b < BUCKETS; b++)
        count[b] = lane[0][b] + lane[1][b] + lane[2][b] + lane[3][b];
}

/* A candidate for the k largest: an entry in or above the k-th one's bucket. */
struct cand {
    uint32_t key;
    int32_t i;
};

static int candidates(const float *x, int n, uint32_t top, struct cand *c)
{
    int m = 0;

    for (int i = 0; i < n; i++) {
        const uint32_t key = order_key(x[i]);
        c[m] = (struct cand){ key, i };
        m += key >> 21 >= top;
    }
    return m;
}

/* The key of the bucket's k-th largest; *n_equal: how many entries with exactly this key are among
 * the k. */
static uint32_t kth_key(const struct cand *c, int m, uint32_t top, int k, int *n_equal)
{
    uint32_t count[BUCKETS] = { 0 }, mid, low;

    for (int i = 0; i < m; i++)
        if (c[i].key >> 21 == top)
            count[c[i].key >> 10 & (BUCKETS - 1)]++;
    mid = bucket_of(count, &k);
    memset(count, 0, sizeof count);
    for (int i = 0; i < m; i++)
        if (c[i].key >> 10 == (top << BITS | mid))
            count[c[i].key & 1023]++;
    low = bucket_of(count, &k);
    *n_equal = k;
    return top << 21 | mid << 10 | low;
}

size_t cb_cpu_topk_scratch(int n_ctx, int n_head)
{
    return ((size_t)n_ctx + 1) * sizeof(struct cand) + (size_t)n_head * sizeof(float);
}

/* The caller's scratch holds the candidates. */
void cb_cpu_topk(struct device *d, const float *x, int n, int k, int32_t *idx)
{
    struct cand *c = cb_par_scratch(d->par, 0);
    uint32_t count[BUCKETS], top, kth;
    int rank = k, n_equal, m, out = 0;

    if (k <= 0)
        return;
    count_tops(x, n, count);
    top = bucket_of(count, &rank);
    m = candidates(x, n, top, c);
    kth = kth_key(c, m, top, rank, &n_equal);
    for (int i = 0; i < m && out < k; i++) {
        const int equal = (c[i].key == kth) & (n_equal > 0);
        idx[out] = c[i].i;
        out += (c[i].key > kth) | equal;
        n_equal -= equal;
    }
}
