/* SPDX-License-Identifier: MIT */
/* time_index.c - times the scan of a trained selector's keys, for a decoded token and for queries
 * of a prompt, at the widths of models that have one. Keys are random. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank/pages.h"
#include "base/err.h"
#include "device/index_strips.h"
#include "time_ops.h"

enum {
    POOL = 64, /* blocks of random keys, which the others repeat */
    MOST_QUERIES = 8,
    /* A session reads the weights and all other layers before it comes to the same layer again. */
    COLD_BYTES = 256 << 20
};

static const int lengths[] = { 8192, 32768, 131072 };
static const int queries[] = { 1, MOST_QUERIES };
enum { N_LENGTH = sizeof lengths / sizeof *lengths, N_QUERIES = sizeof queries / sizeof *queries };

/* Keys of several layers, and the queries of one */
struct index {
    struct device *d;
    const struct op_index_shape *s;
    int n_tok, n_key, n_layer;
    size_t layer; /* bytes of a layer's keys */
    uint8_t *key; /* [n_layer][layer] */
    float *q;     /* [n_tok][n_head][hd], then weights [n_head] of each query */
    float *out;   /* [n_tok][n_key] */
    void *work;
};

static size_t stride(const struct op_index_shape *s)
{
    return (size_t)s->n_head * (size_t)(s->hd + 1);
}

static void scan(void *ctx)
{
    const struct index *x = ctx;
    const struct op_index_shape *s = x->s;
    struct index_scan of = { .n_tok = x->n_tok,
                             .n_head = s->n_head,
                             .hd = s->hd,
                             .n = x->n_key,
                             .k = s->k,
                             .q = x->q,
                             .weight = x->q + (size_t)s->n_head * (size_t)s->hd,
                             .stride = (int)stride(s),
                             .out = x->out,
                             .out_stride = (size_t)x->n_key,
                             .work = x->work };

    for (int l = 0; l < x->n_layer; l++) {
        of.keys = x->key + (size_t)l * x->layer;
        x->d->ops->index_scan(x->d, &of);
    }
}

static void close(struct index *x)
{
    cb_pages_release(x->key, x->layer * (size_t)x->n_layer);
    free(x->q);
    free(x->out);
    free(x->work);
}

/* Fills the keys with blocks of a pool. */
static int fill(struct index *x)
{
    const int hd = x->s->hd;
    const size_t block = cb_strip_bytes(hd), all = x->layer * (size_t)x->n_layer;
    float *key = cb_calloc((size_t)(POOL * STRIP_BLOCK) * (size_t)hd, sizeof *key);
    uint8_t *pool = cb_alloc_aligned(POOL, block);
    const int err = key && pool ? CB_OK : CB_ENOMEM;

    if (!err) {
        cb_op_fill(key, (size_t)(POOL * STRIP_BLOCK) * (size_t)hd);
        cb_strips_put(key, POOL * STRIP_BLOCK, hd, hd, 0, pool);
        for (size_t at = 0; at < all; at += block)
            memcpy(x->key + at, pool + at / block % POOL * block, block);
    }
    free(key);
    free(pool);
    return err;
}

static int open(struct index *x)
{
    const struct op_index_shape *s = x->s;
    const size_t n = (size_t)x->n_tok * stride(s);

    x->layer = cb_strips_bytes(s->hd, x->n_key);
    x->n_layer = 1 + (int)(COLD_BYTES / (x->layer * (size_t)x->n_tok));
    x->q = cb_calloc(n, sizeof *x->q);
    x->out = cb_calloc((size_t)x->n_tok * (size_t)x->n_key, sizeof *x->out);
    x->work = cb_alloc_aligned(
        1, cb_index_scan_bytes(NULL, x->n_tok, s->n_head, s->hd, x->n_key, s->k, NULL));
    if (!x->q || !x->out || !x->work)
        return CB_ENOMEM;
    if (x->d->ops->reserve(x->d, MOST_QUERIES, s->hd, s->hd, s->n_head, s->hd, x->n_key) < 0)
        return CB_ENOMEM;
    cb_op_fill(x->q, n);
    TRY(cb_op_reserve(x->layer * (size_t)x->n_layer, &x->key));
    return fill(x);
}

/* Operations are those of all keys with all heads, more than a scan for the best has to do. */
static int time_scan(struct op_bench *b, const struct op_index_shape *s, int n_tok, int n_key)
{
    struct index x = { .d = b->d, .s = s, .n_tok = n_tok, .n_key = n_key };
    struct op_row row = { .op = "index_scan",
                          .type = "strips",
                          .model = s->model,
                          .n_tok = n_tok,
                          .n_ctx = n_key,
                          .read = b->limit[LIMIT_READ],
                          .peak = b->limit[LIMIT_INT8] };
    int err = open(&x);

    if (!err) {
        row.s = cb_op_time(b, scan, &x, 0) / x.n_layer;
        row.bytes = (double)n_key / STRIP_BLOCK * (double)cb_strip_scan_bytes(s->hd);
        row.flop = 2.0 * n_tok * n_key * s->n_head * s->hd;
        snprintf(row.shape, sizeof row.shape, "%d heads of %d, best %d", s->n_head, s->hd, s->k);
        err = cb_op_emit(b, &row);
    }
    close(&x);
    return err;
}

int cb_bench_index(struct op_bench *b)
{
    if (!b->d->ops->index_scan || b->d->ops->memory || !cb_op_picked(b, KIND_OP, "index_scan") ||
        !cb_op_picked(b, KIND_TYPE, "strips"))
        return CB_OK;
    for (const struct op_index_shape *s = cb_op_index_shape; s->model; s++)
        for (int i = 0; cb_op_picked(b, KIND_MODEL, s->model) && i < N_LENGTH; i++)
            for (int j = 0; j < N_QUERIES; j++)
                TRY(time_scan(b, s, queries[j], lengths[i]));
    return CB_OK;
}
