/* SPDX-License-Identifier: MIT */
/* sketch_topk.c - sketches keys, and finds the slots that score highest by them, on all threads.
 * Two loops over pieces of each KV head: scores and their sums, then the ranks of tokens and how
 * many have each rank. The thread that ends a KV head's loop draws the conclusion from all its
 * pieces: the query heads' log-sum-exp, then the chosen slots. */
#include <stdatomic.h>
#include <string.h>

#include "cpu/kern.h"
#include "cpu/vector/kern_vec.h"
#include "device/sketch.h"

/* ---- sketching ---- */

struct drawing {
    const struct kern_vec *k;
    enum kv_type t;
    const char *rows;
    int hd, bits, n_out;
    char *sketch;
};

static void draw_block(void *ctx, int b, int thread)
{
    const struct drawing *y = ctx;
    const size_t row = cb_kv_row_bytes(y->t, y->hd);
    const char *rows = y->rows + (size_t)b * SKETCH_BLOCK * row;
    char *block = y->sketch + (size_t)b * cb_sketch_bytes(y->bits, y->hd);
    const int first = b ? 0 : y->n_out;
    float x[MAX_HD], min[MAX_HD], max[MAX_HD];

    (void)thread;
    for (int j = first; j < SKETCH_BLOCK; j++) {
        y->k->decode(y->t, rows + (size_t)j * row, y->hd, x);
        cb_sketch_widen(x, y->hd, j == first, min, max);
    }
    cb_sketch_head(y->bits, y->hd, min, max, block);
    for (int j = 0; j < SKETCH_BLOCK; j++) {
        y->k->decode(y->t, rows + (size_t)j * row, y->hd, x);
        cb_sketch_put(y->bits, y->hd, x, j, min, max, block);
    }
}

void cb_cpu_sketch(struct device *d, enum kv_type t, const void *rows, int n_block, int hd,
                   int bits, int n_out, void *sketch)
{
    struct drawing y = { cb_cpu_vec(d), t, rows, hd, bits, n_out, sketch };
    cb_par_for(d->par, n_block, draw_block, &y);
}

/* ---- choosing ---- */

enum {
    ITEMS = 4,   /* items a thread, at least */
    SAMPLE = 64, /* tokens of a piece whose ranks tell about where the chosen end */
    TAKEN = -1,  /* no thread's number */
};

struct choosing {
    const struct kern_sketch *k;
    const struct sketch_topk *s;
    int group, n, n_piece, n_item; /* n: tokens scanned */
    struct sketch_work w;
    atomic_int *left;   /* [n_kv] unfinished items */
    int *most;          /* [n_kv] ranks from this one on are not counted */
    atomic_int *holder; /* [n_kv][n_item] the thread that has scored the item, or TAKEN */
};

/* An item's pieces, and the scores of a piece */
static void item_of(const struct choosing *c, int i, int *kv, int *from, int *to)
{
    const int item = i % c->n_item;

    *kv = i / c->n_item;
    *from = item * c->n_piece / c->n_item;
    *to = (item + 1) * c->n_piece / c->n_item;
}

static size_t piece_at(const struct choosing *c, int kv, int piece)
{
    return (size_t)kv * (size_t)c->n_piece + (size_t)piece;
}

static int16_t *scores_of(const struct choosing *c, int kv, int piece)
{
    return c->w.score + piece_at(c, kv, piece) * (size_t)c->group * SKETCH_PIECE;
}

static int tokens_of(const struct choosing *c, int piece)
{
    const int left = c->n - piece * SKETCH_PIECE;
    return left < SKETCH_PIECE ? left : SKETCH_PIECE;
}

static int is_last(const struct choosing *c, int kv)
{
    return atomic_fetch_sub_explicit(&c->left[kv], 1, memory_order_acq_rel) == 1;
}

static void scan_piece(const struct choosing *c, int kv, int piece)
{
    const struct sketch_topk *s = c->s;
    const size_t bytes = cb_sketch_bytes(s->bits, s->hd), at = piece_at(c, kv, piece);
    const uint8_t *block = s->sketch + (size_t)kv * s->head_bytes +
                           (size_t)piece * (SKETCH_PIECE / SKETCH_BLOCK) * bytes;
    const float *q = c->w.query + (size_t)(kv * c->group) * (size_t)cb_sketch_pad(s->hd);
    int16_t *score = scores_of(c, kv, piece);
    const int n = tokens_of(c, piece);

    c->k->scan(s->bits, s->hd, &c->w.strips[kv], block, n / SKETCH_BLOCK, q, c->group, score,
               SKETCH_PIECE);
    for (int i = 0; i < c->group; i++) {
        const size_t x = at * (size_t)c->group + (size_t)i;
        c->w.sum[x] = c->k->weigh(score + (size_t)i * SKETCH_PIECE, n, &c->w.top[x]);
    }
}

/* The ranks of n of a piece's tokens */
static void rank_tokens(const struct choosing *c, int kv, int piece, int n, uint16_t *rank)
{
    c->k->rank(scores_of(c, kv, piece), SKETCH_PIECE, c->w.lse + kv * c->group, c->group, n, rank);
}

/* A rank that k candidates are most likely below, and few others: only these need to be counted.
 * All are if the guess proves wrong. */
static int guess(const struct choosing *c, int kv)
{
    const int64_t want = 2 * (int64_t)c->s->k * SAMPLE / SKETCH_PIECE + 32;
    uint32_t count[SKETCH_BUCKETS] = { 0 };
    uint16_t rank[SAMPLE];
    int64_t n = 0;
    int b = 0;

    if (c->s->miss > 0 || want > (int64_t)c->n_piece * SAMPLE / 4)
        return SKETCH_BUCKETS;
    for (int p = 0; p < c->n_piece; p++) {
        rank_tokens(c, kv, p, SAMPLE, rank);
        for (int j = 0; j < SAMPLE; j++)
            count[rank[j]]++;
    }
    while (b < SKETCH_BUCKETS && n < want)
        n += count[b++];
    return b;
}

static void scan_item(void *ctx, int i, int thread)
{
    const struct choosing *c = ctx;
    int kv, from, to;

    item_of(c, i, &kv, &from, &to);
    for (int p = from; p < to; p++)
        scan_piece(c, kv, p);
    atomic_store_explicit(&c->holder[i], thread, memory_order_relaxed);
    if (!is_last(c, kv))
        return;
    for (int h = 0; h < c->group; h++) {
        const size_t at = piece_at(c, kv, 0) * (size_t)c->group + (size_t)h;
        c->w.lse[kv * c->group + h] =
            cb_sketch_lse(c->w.top + at, c->w.sum + at, c->n_piece, c->group);
    }
    c->most[kv] = guess(c, kv);
}

/* Counts the ranks of an item's candidates that are below `most`. */
static void count_item(const struct choosing *c, int i, int most)
{
    uint32_t *count = c->w.count + (size_t)i * SKETCH_BUCKETS;
    int kv, from, to;

    item_of(c, i, &kv, &from, &to);
    memset(count, 0, (size_t)most * sizeof *count);
    for (int p = from; p < to; p++) {
        const int first = p * SKETCH_PIECE, n = tokens_of(c, p);
        const int lo = c->s->lo > first ? c->s->lo - first : 0;
        const int hi = c->s->hi - first < n ? c->s->hi - first : n;
        c->k->count(c->w.rank + piece_at(c, kv, p) * SKETCH_PIECE + lo, hi - lo, most, count);
    }
}

/* The sum of a KV head's counts of ranks below `most` -> the first item's */
static uint32_t *add_counts(const struct choosing *c, int kv, int most)
{
    uint32_t *count = c->w.count + (size_t)(kv * c->n_item) * SKETCH_BUCKETS;

    for (int i = 1; i < c->n_item; i++)
        for (int b = 0; b < most; b++)
            count[b] += count[i * SKETCH_BUCKETS + b];
    return count;
}

static void pick(const struct choosing *c, int kv)
{
    const struct sketch_topk *s = c->s;
    const uint32_t *count = add_counts(c, kv, c->most[kv]);
    const uint16_t *rank = c->w.rank + piece_at(c, kv, 0) * SKETCH_PIECE;
    int limit, n_equal;

    if (cb_sketch_limit(count, c->most[kv], s->k, s->miss, &limit, &n_equal) < s->k &&
        c->most[kv] < SKETCH_BUCKETS) {
        for (int i = 0; i < c->n_item; i++)
            count_item(c, kv * c->n_item + i, SKETCH_BUCKETS);
        count = add_counts(c, kv, SKETCH_BUCKETS);
        cb_sketch_limit(count, SKETCH_BUCKETS, s->k, s->miss, &limit, &n_equal);
    }
    s->n[kv] = c->k->pick(rank + s->lo, s->hi - s->lo, limit, &n_equal, s->lo,
                          s->idx + (size_t)kv * (size_t)s->idx_stride);
}

/* An item that is not taken: one that this thread has scored, whose scores are in its cache, or the
 * next one */
static int take_item(const struct choosing *c, int thread)
{
    const int n = c->s->n_kv * c->n_item;

    for (int any = 0;; any = 1)
        for (int i = 0; i < n; i++) {
            int holder = atomic_load_explicit(&c->holder[i], memory_order_relaxed);
            if (holder != TAKEN && (any || holder == thread) &&
                atomic_compare_exchange_strong(&c->holder[i], &holder, TAKEN))
                return i;
        }
}

static void rank_item(void *ctx, int ticket, int thread)
{
    const struct choosing *c = ctx;
    const int i = take_item(c, thread);
    int kv, from, to;

    (void)ticket;
    item_of(c, i, &kv, &from, &to);
    for (int p = from; p < to; p++)
        rank_tokens(c, kv, p, tokens_of(c, p), c->w.rank + piece_at(c, kv, p) * SKETCH_PIECE);
    count_item(c, i, c->most[kv]);
    if (is_last(c, kv))
        pick(c, kv);
}

static void loop(struct device *d, struct choosing *c, par_fn fn)
{
    for (int kv = 0; kv < c->s->n_kv; kv++)
        atomic_init(&c->left[kv], c->n_item);
    cb_par_for(d->par, c->s->n_kv * c->n_item, fn, c);
}

static int items(const struct device *d, const struct choosing *c)
{
    const int want = (ITEMS * cb_par_threads(d->par) + c->s->n_kv - 1) / c->s->n_kv;
    const int most = want < SKETCH_MAX_ITEMS ? want : SKETCH_MAX_ITEMS;
    return most < c->n_piece ? most : c->n_piece;
}

void cb_cpu_sketch_topk(struct device *d, const struct sketch_topk *s)
{
    struct choosing c = { .k = cb_cpu_vec(d)->sketch,
                          .s = s,
                          .group = s->n_head / s->n_kv,
                          .n = s->n_block * SKETCH_BLOCK,
                          .n_piece = cb_sketch_pieces(s->n_block) };

    c.n_item = items(d, &c);
    cb_sketch_work(s->work, s->n_head, s->n_kv, s->hd, s->n_block, c.n_item, &c.w);
    c.most = c.w.own;
    c.left = (atomic_int *)(c.most + s->n_kv);
    c.holder = c.left + s->n_kv;
    if (s->step != SKETCH_CHOICE) {
        cb_sketch_queries(s, &c.w);
        loop(d, &c, scan_item);
    }
    if (s->step != SKETCH_SCORES)
        loop(d, &c, rank_item);
}
