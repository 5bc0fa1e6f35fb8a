/* SPDX-License-Identifier: MIT */
/* time_gather.c - times gathers of rows into floats: stored keys of scattered slots, and embeddings
 * of tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank/pages.h"
#include "base/err.h"
#include "time_ops.h"

enum { A_CALL = 512 }; /* rows a call */

struct gather {
    struct device *d;
    enum kv_type type;
    struct weight w; /* the weight that rows are taken from, if it has a name */
    const char *mem;
    int32_t *idx;         /* [n_call][A_CALL] indices of n_all rows */
    int n_call, n_all, n; /* n: floats a row */
    size_t row_bytes;
    float *y; /* [A_CALL][n] */
};

static void gather_rows(void *ctx)
{
    const struct gather *g = ctx;

    for (int i = 0; i < g->n_call; i++) {
        const int32_t *idx = g->idx + (size_t)i * A_CALL;
        if (*g->w.name)
            g->d->ops->get_rows(g->d, &g->w, idx, A_CALL, g->y);
        else
            g->d->ops->kv_decode(g->d, g->type, g->mem, idx, A_CALL, g->n, g->y);
    }
}

static int fill(struct gather *g, char *mem)
{
    const size_t n_idx = (size_t)g->n_call * A_CALL;
    uint32_t x = 1;

    memset(mem, 0, (size_t)g->n_all * g->row_bytes); /* unwritten pages all share one */
    g->mem = g->w.raw = mem;
    g->idx = cb_calloc(n_idx, sizeof *g->idx);
    g->y = cb_device_alloc(g->d, A_CALL * (size_t)g->n, sizeof *g->y);
    if (!g->idx || !g->y)
        return CB_ENOMEM;
    for (size_t i = 0; i < n_idx; i++) {
        x = x * 1664525u + 1013904223u;
        g->idx[i] = (int32_t)((x >> 4) % (uint32_t)g->n_all);
    }
    return CB_OK;
}

/* Uses more rows than caches hold. The caller has set the row's op, type and model. */
static int run(struct op_bench *b, struct gather *g, struct op_row *row)
{
    size_t bytes;
    char *mem;
    int err;

    g->d = b->d;
    g->n_all = (int)(b->cold_bytes / g->row_bytes);
    g->n_call = 1 + g->n_all / A_CALL;
    bytes = (size_t)g->n_all * g->row_bytes;
    TRY(cb_op_reserve(bytes, &mem));
    err = fill(g, mem);
    if (!err) {
        row->threads = *g->w.name != '\0'; /* embeddings run in the caller's thread */
        row->n_tok = A_CALL;
        row->bytes = (double)A_CALL * (double)g->row_bytes;
        row->read = b->limit[g->row_bytes < 512 ? LIMIT_GATHER_128 : LIMIT_GATHER_512];
        row->s = cb_op_time(b, gather_rows, g, 0) / g->n_call;
        snprintf(row->shape, sizeof row->shape, "rows of %d", g->n);
        err = cb_op_emit(b, row);
    }
    cb_pages_release(mem, bytes);
    free(g->idx);
    cb_device_free(g->d, g->y);
    return err;
}

static int stored(struct op_bench *b, const struct op_shape *s, enum kv_type t)
{
    struct gather g = { .type = t, .n = s->hd, .row_bytes = cb_kv_row_bytes(t, s->hd) };
    struct op_row row = { .op = "rows", .type = cb_kv_type[t].name, .model = s->model };

    return run(b, &g, &row);
}

static int embedded(struct op_bench *b, const struct op_shape *s, enum dtype t)
{
    struct gather g = { .n = s->n_embd, .row_bytes = cb_row_bytes(t, s->n_embd) };
    struct op_row row = { .op = "embed", .type = cb_dtype[t].name, .model = s->model };

    if (s->n_embd % cb_dtype[t].block)
        return CB_OK;
    g.w = (struct weight){ .name = "embed", .type = t, .n_in = s->n_embd, .n_out = s->n_vocab };
    return run(b, &g, &row);
}

int cb_bench_gather(struct op_bench *b)
{
    for (const struct op_shape *s = cb_op_shape; s->model; s++) {
        if (!cb_op_picked(b, KIND_MODEL, s->model))
            continue;
        for (int t = 0; cb_op_picked(b, KIND_OP, "rows") && t < KV_TYPE_COUNT; t++)
            if (cb_op_picked(b, KIND_TYPE, cb_kv_type[t].name))
                TRY(stored(b, s, (enum kv_type)t));
        for (int t = 0; cb_op_picked(b, KIND_OP, "embed") && t < DT_COUNT; t++)
            if (cb_op_picked(b, KIND_TYPE, cb_dtype[t].name))
                TRY(embedded(b, s, (enum dtype)t));
    }
    return CB_OK;
}
