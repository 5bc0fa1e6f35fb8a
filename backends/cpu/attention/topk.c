/* SPDX-License-Identifier: MIT */
/* topk.c - selection of stored tokens: each token's largest logit over the heads, and the k largest
 * of n floats in O(n). The key of the k-th largest is found by counting, first on its upper 11
 * bits, then among the keys that share them. Among many floats a sample tells a floor that more
 * than k reach; all threads look for these, and the others are not counted. */
#include <math.h>
#include <string.h>

#include "base/ints.h"
#include "cpu/kern.h"
#include "cpu/vector/kern_vec.h"

enum {
    BITS = 11,
    BUCKETS = 1 << BITS,
    PIECE = 2048,  /* entries an item */
    LEAST = 8192,  /* entries that are worth a sample */
    SAMPLE = 2048, /* entries of a sample, or up to twice as many */
    PIECES = 64,   /* of a search by a floor, at most */
};

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

static float float_of(uint32_t key)
{
    const uint32_t u = key >> 31 ? key ^ 0x80000000u : ~key;
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
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

/* The key of the k-th largest of m candidates */
static uint32_t kth_of(const struct cand *c, int m, int k, int *n_equal)
{
    uint32_t count[BUCKETS] = { 0 }, top;

    for (int i = 0; i < m; i++)
        count[c[i].key >> 21]++;
    top = bucket_of(count, &k);
    return kth_key(c, m, top, k, n_equal);
}

/* The candidates above a key, and the first n_equal that have it: k of them */
static void put(const struct cand *c, uint32_t kth, int n_equal, int k, int32_t *idx)
{
    for (int out = 0; out < k; c++) {
        const int equal = (c->key == kth) & (n_equal > 0);
        idx[out] = c->i;
        out += (c->key > kth) | equal;
        n_equal -= equal;
    }
}

static void topk_of_all(const float *x, int n, int k, struct cand *c, int32_t *idx)
{
    uint32_t count[BUCKETS], top, kth;
    int rank = k, n_equal, m;

    count_tops(x, n, count);
    top = bucket_of(count, &rank);
    m = candidates(x, n, top, c);
    kth = kth_key(c, m, top, rank, &n_equal);
    put(c, kth, n_equal, k, idx);
}

/* ---- among many, by a floor ---- */

struct search {
    const struct kern_vec *k;
    const float *x;
    float floor;
    int n, piece; /* entries, and those of a piece */
    int32_t *at;  /* [n] those that reach the floor, of each piece from its beginning on */
    int found[PIECES];
};

static void search_piece(void *ctx, int i, int thread)
{
    struct search *y = ctx;
    const int from = i * y->piece, n = min_int(y->n - from, y->piece);

    (void)thread;
    y->found[i] = y->k->at_least(y->x + from, n, y->floor, from, y->at + from);
}

/* An entry that some more than k of x[n] are expected to reach */
static float floor_of(const float *x, int n, int k, struct cand *c)
{
    const int every = n / SAMPLE, m = (n - 1) / every + 1;
    const double share = (double)k * m / n;
    const int rank = (int)(share + 4 * sqrt(share)) + 8; /* 4 deviations and more */
    int n_equal;

    if (rank > m)
        return -INFINITY;
    for (int i = 0; i < m; i++)
        c[i].key = order_key(x[i * every]);
    return float_of(kth_of(c, m, rank, &n_equal));
}

/* 0: the floor was not good, and idx is arbitrary. NaN may lie above all and below all: the k-th
 * largest tells whether an entry below the floor is among the k. */
static int topk_by_floor(struct device *d, const float *x, int n, int k, struct cand *c,
                         int32_t *idx)
{
    struct search y = { .k = cb_cpu_vec(d),
                        .x = x,
                        .floor = floor_of(x, n, k, c),
                        .n = n,
                        .piece = max_int(PIECE, (n - 1) / PIECES + 1),
                        .at = (int32_t *)(void *)c + n }; /* after n / 2 candidates */
    const int pieces = (n - 1) / y.piece + 1;
    int m = 0, n_equal;
    uint32_t kth;

    cb_par_for(d->par, pieces, search_piece, &y);
    for (int i = 0; i < pieces; i++)
        m += y.found[i];
    if (m < k || m > n / 2)
        return 0;
    m = 0;
    for (int i = 0; i < pieces; i++)
        for (int j = 0; j < y.found[i]; j++, m++) {
            const int at = y.at[i * y.piece + j];
            c[m] = (struct cand){ order_key(x[at]), at };
        }
    kth = kth_of(c, m, k, &n_equal);
    if (kth < order_key(y.floor))
        return 0;
    put(c, kth, n_equal, k, idx);
    return 1;
}

size_t cb_cpu_topk_scratch(int n_ctx, int n_head)
{
    return ((size_t)n_ctx + 1) * sizeof(struct cand) + (size_t)n_head * sizeof(float);
}

/* The caller's scratch holds the candidates. */
void cb_cpu_topk(struct device *d, const float *x, int n, int k, int32_t *idx)
{
    struct cand *c = cb_par_scratch(d->par, 0);

    if (k <= 0 || (n >= LEAST && k <= n / 8 && topk_by_floor(d, x, n, k, c, idx)))
        return;
    topk_of_all(x, n, k, c, idx);
}
