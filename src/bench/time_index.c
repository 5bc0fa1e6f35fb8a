/* SPDX-License-Identifier: MIT */
/* time_index.c - times the scan of a trained selector's keys, for a decoded token and for queries
 * of a prompt, at the widths of models that have one; on a device with memory of its own, a decoded
 * token's choice of tokens or of blocks. Keys are random. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank/pages.h"
#include "base/err.h"
#include "device/index_strips.h"
#include "gguf/dtype.h"
#include "time_ops.h"

enum {
    POOL = 64, /* blocks of random keys, which the others repeat */
    MOST_QUERIES = 8,
    NEAR_PART = 8 /* an eighth more than are wanted is scored by all bits: index_choice.c */
};

static const int lengths[] = { 8192, 32768, 131072 };
static const int queries[] = { 1, MOST_QUERIES };
enum { N_LENGTH = sizeof lengths / sizeof *lengths, N_QUERIES = sizeof queries / sizeof *queries };

/* Keys of several layers, and the queries of one */
struct index {
    struct device *d;
    const struct op_index_shape *s;
    int n_tok, n_key, n_layer;
    int refused;  /* 1: the device has left a choice to the CPU */
    size_t layer; /* bytes of a layer's keys */
    uint8_t *key; /* [n_layer][layer] */
    float *q;     /* [n_tok][n_head][hd], then weights [n_head] of each query */
    float *out;   /* [n_tok][n_key] */
    int32_t *idx; /* [n_head][list_rows()] */
    void *work;
};

/* Bytes of n keys: strips, or for a choice of blocks rows of halves */
static size_t key_bytes(const struct op_index_shape *s, int n)
{
    return s->block ? (size_t)n * cb_kv_row_bytes(KV_F16, s->hd) : cb_strips_bytes(s->hd, n);
}

static const char *type_of(const struct op_index_shape *s)
{
    return s->block ? "f16" : "strips";
}

static int list_rows(const struct op_index_shape *s)
{
    return s->block ? s->k * s->block : s->k;
}

static size_t stride(const struct op_index_shape *s)
{
    return (size_t)s->n_head * (size_t)(s->hd + 1);
}

static struct index_scan scan_of(const struct index *x, int l)
{
    const struct op_index_shape *s = x->s;

    return (struct index_scan){ .n_tok = x->n_tok,
                                .n_head = s->n_head,
                                .hd = s->hd,
                                .n = x->n_key,
                                .k = s->k,
                                .keys = x->key + (size_t)l * x->layer,
                                .q = x->q,
                                .weight = x->q + (size_t)s->n_head * (size_t)s->hd,
                                .stride = (int)stride(s),
                                .out = x->out,
                                .out_stride = (size_t)x->n_key,
                                .work = x->work };
}

static void scan(void *ctx)
{
    const struct index *x = ctx;

    for (int l = 0; l < x->n_layer; l++) {
        const struct index_scan of = scan_of(x, l);
        x->d->ops->index_scan(x->d, &of);
    }
}

static void choose(void *ctx)
{
    struct index *x = ctx;
    const int k = x->s->k;

    for (int l = 0; l < x->n_layer; l++) {
        const struct index_topk of = {
            .s = scan_of(x, l), .k = k, .n_near = k + k / NEAR_PART, .per = 1, .idx = x->idx
        };
        x->refused |= !x->d->ops->index_topk(x->d, &of);
    }
}

static void choose_blocks(void *ctx)
{
    struct index *x = ctx;
    const struct op_index_shape *s = x->s;

    for (int l = 0; l < x->n_layer; l++) {
        const struct block_topk of = { .type = KV_F16,
                                       .keys = x->key + (size_t)l * x->layer,
                                       .q = x->q,
                                       .n_head = s->n_head,
                                       .hd = s->hd,
                                       .block = s->block,
                                       .n_block = x->n_key / s->block,
                                       .k = s->k,
                                       .idx = x->idx,
                                       .idx_stride = list_rows(s) };
        x->refused |= !x->d->ops->block_topk(x->d, &of);
    }
}

/* Tells a device with memory of its own that it may mirror the keys. */
static int watch(const struct index *x, int on)
{
    const struct device_memory *m = x->d->ops->memory;
    const size_t row =
        x->s->block ? cb_kv_row_bytes(KV_F16, x->s->hd) : cb_strip_row_bytes(x->s->hd);

    for (int l = 0; m && x->key && l < x->n_layer; l++) {
        const uint8_t *key = x->key + (size_t)l * x->layer;
        if (on)
            TRY(m->watch(x->d, key, row, x->layer / row));
        else
            m->unwatch(x->d, key);
    }
    return CB_OK;
}

static void close(struct index *x)
{
    watch(x, 0);
    cb_pages_release(x->key, x->layer * (size_t)x->n_layer);
    cb_device_free(x->d, x->q);
    free(x->out);
    free(x->idx);
    free(x->work);
}

/* A pool's keys as they are stored */
static void store(const struct index *x, const float *key, uint8_t *pool)
{
    const int n = POOL * STRIP_BLOCK, hd = x->s->hd;

    if (x->s->block)
        cb_dtype[DT_F16].from_f32(key, pool, (int64_t)n * hd);
    else
        cb_strips_put(key, n, hd, hd, 0, pool);
}

/* Fills the keys with blocks of a pool. */
static int fill(struct index *x)
{
    const int hd = x->s->hd;
    const size_t block = key_bytes(x->s, STRIP_BLOCK), all = x->layer * (size_t)x->n_layer;
    float *key = cb_calloc((size_t)(POOL * STRIP_BLOCK) * (size_t)hd, sizeof *key);
    uint8_t *pool = cb_alloc_aligned(POOL, block);
    const int err = key && pool ? CB_OK : CB_ENOMEM;

    if (!err) {
        cb_op_fill(key, (size_t)(POOL * STRIP_BLOCK) * (size_t)hd);
        store(x, key, pool);
        for (size_t at = 0; at < all; at += block)
            memcpy(x->key + at, pool + at / block % POOL * block, block);
    }
    free(key);
    free(pool);
    return err;
}

static int open(struct op_bench *b, struct index *x)
{
    const struct op_index_shape *s = x->s;
    const size_t n = (size_t)x->n_tok * stride(s);

    x->layer = key_bytes(s, x->n_key);
    x->n_layer = 1 + (int)(b->cold_bytes / (x->layer * (size_t)x->n_tok));
    x->q = cb_op_floats(b, n);
    x->idx = cb_calloc((size_t)(s->n_head * list_rows(s)), sizeof *x->idx);
    x->out = cb_calloc((size_t)x->n_tok * (size_t)x->n_key, sizeof *x->out);
    x->work = cb_alloc_aligned(
        1, cb_index_scan_bytes(NULL, x->n_tok, s->n_head, s->hd, x->n_key, s->k, NULL));
    if (!x->q || !x->idx || !x->out || !x->work)
        return CB_ENOMEM;
    if (x->d->ops->reserve(x->d, MOST_QUERIES, s->hd, s->hd, s->n_head, s->hd, x->n_key) < 0)
        return CB_ENOMEM;
    TRY(cb_op_reserve(x->layer * (size_t)x->n_layer, &x->key));
    TRY(watch(x, 1));
    return fill(x);
}

/* Operations are those of all keys with all heads, more than a scan for the best has to do. */
static int time_op(struct op_bench *b, const char *op, void (*fn)(void *ctx),
                   const struct op_index_shape *s, int n_tok, int n_key)
{
    struct index x = { .d = b->d, .s = s, .n_tok = n_tok, .n_key = n_key };
    struct op_row row = { .op = op,
                          .type = type_of(s),
                          .model = s->model,
                          .n_tok = n_tok,
                          .n_ctx = n_key,
                          .read = b->limit[LIMIT_READ],
                          .peak = b->limit[LIMIT_INT8] };
    int err = open(b, &x);

    if (!err) {
        row.s = cb_op_time(b, fn, &x, 0) / x.n_layer;
        row.bytes = s->block ? (double)x.layer
                             : (double)n_key / STRIP_BLOCK * (double)cb_strip_scan_bytes(s->hd);
        row.flop = 2.0 * n_tok * n_key * s->n_head * s->hd;
        snprintf(row.shape, sizeof row.shape, "%d heads of %d, best %d%s", s->n_head, s->hd, s->k,
                 s->block ? " blocks" : "");
        err = x.refused ? CB_OK : cb_op_emit(b, &row);
    }
    close(&x);
    return err;
}

static int time_length(struct op_bench *b, const struct op_index_shape *s, int n_key)
{
    const struct ops *ops = b->d->ops;

    if (s->block)
        return ops->block_topk && cb_op_picked(b, KIND_OP, "block_topk")
                   ? time_op(b, "block_topk", choose_blocks, s, 1, n_key)
                   : CB_OK;
    for (int j = 0; ops->index_scan && !ops->memory && j < N_QUERIES; j++)
        if (cb_op_picked(b, KIND_OP, "index_scan"))
            TRY(time_op(b, "index_scan", scan, s, queries[j], n_key));
    return ops->index_topk && cb_op_picked(b, KIND_OP, "index_topk")
               ? time_op(b, "index_topk", choose, s, 1, n_key)
               : CB_OK;
}

int cb_bench_index(struct op_bench *b)
{
    for (const struct op_index_shape *s = cb_op_index_shape; s->model; s++)
        if (cb_op_picked(b, KIND_MODEL, s->model) && cb_op_picked(b, KIND_TYPE, type_of(s)))
            for (int i = 0; i < N_LENGTH; i++)
                TRY(time_length(b, s, lengths[i]));
    return CB_OK;
}
