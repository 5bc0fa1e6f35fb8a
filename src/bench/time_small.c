/* SPDX-License-Identifier: MIT */
/* time_small.c - times the ops that are neither matrix products nor attention: those between the
 * products, on activations that caches hold, and those by which policies choose. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "time_ops.h"

enum {
    MANY = 512,   /* tokens of a prompt */
    WINDOW = 32,  /* queries that score a prompt */
    CHOSEN = 1024 /* tokens that are kept or chosen */
};

struct small {
    struct device *d;
    const struct op_shape *s;
    enum kv_type type;
    int n_tok;
    /* in the device's memory, as in a session */
    float *x, *y; /* [MANY][widest row] */
    float *out;   /* [MANY][heads or embedding] */
    float *cs;    /* [MANY][hd / 2][2] */
    float *lse;   /* [WINDOW][n_head] */
    /* in the host's */
    float *host_x, *host_y; /* as large, or [n_head][n_ctx] */
    float *step;            /* [n_ctx] of prepacked blocks */
    char *keys;             /* [n_kv][n_ctx][hd] as stored, any type */
    int32_t *idx;           /* [n_ctx] */
    struct kv_run *run;
};

/* ---- the ops; each leaves what it reads as it was, or as large ---- */

static void norm(void *ctx)
{
    const struct small *c = ctx;
    const int n = c->s->n_embd;
    c->d->ops->rmsnorm(c->d, c->x, c->y, 1e-5f, n, 1, c->n_tok, n, c->out, n);
}

static void rope(void *ctx)
{
    const struct small *c = ctx;
    const struct op_shape *s = c->s;
    c->d->ops->rope(c->d, ROPE_HALF, c->out, c->n_tok, s->n_head, s->hd, s->n_head * s->hd, s->hd,
                    c->cs);
}

static void glu(void *ctx)
{
    const struct small *c = ctx;
    c->d->ops->glu(c->d, ACT_SILU, c->x, c->y, c->s->n_ff, c->n_tok);
}

static void add(void *ctx)
{
    const struct small *c = ctx;
    c->d->ops->add(c->d, c->out, c->x, 1, (size_t)c->n_tok * (size_t)c->s->n_embd);
}

static void store(void *ctx)
{
    const struct small *c = ctx;
    c->d->ops->kv_encode(c->d, c->type, c->x, c->n_tok, c->s->hd, c->s->hd, c->keys);
}

/* Prepacks all keys and unpacks them again. */
static void prepack(void *ctx)
{
    const struct small *c = ctx;
    const struct ops *op = c->d->ops;
    const int n_block = c->s->n_ctx / KV_PREPACK, hd = c->s->hd;
    const size_t bytes = KV_PREPACK * cb_kv_row_bytes(c->type, hd);
    float *step = c->step;

    for (int h = 0; h < c->s->n_kv; h++) {
        char *rows = c->keys + (size_t)h * (size_t)n_block * bytes;
        op->prepack(c->d, c->type, 0, hd, rows, n_block, step);
        for (int i = 0; i < n_block; i++, rows += bytes)
            op->unpack(c->d, c->type, 0, hd, rows, step + i * KV_PREPACK, 0, KV_PREPACK, rows);
    }
}

static void score(void *ctx)
{
    const struct small *c = ctx;
    const struct op_shape *s = c->s;
    const struct score of = { .a = { .n_tok = WINDOW,
                                     .n_head = s->n_head,
                                     .n_kv = s->n_kv,
                                     .hd = s->hd,
                                     .scale = 1 / sqrtf((float)s->hd),
                                     .causal = 1,
                                     .type_k = c->type,
                                     .type_v = c->type,
                                     .run = c->run,
                                     .q = c->x,
                                     .q_stride = s->n_head * s->hd,
                                     .lse = c->lse },
                              .out = c->host_y,
                              .out_stride = s->n_ctx };
    c->d->ops->score(c->d, &of);
}

/* Joins the heads of one token. */
static void join(void *ctx)
{
    const struct small *c = ctx;
    c->d->ops->join(c->d, c->out, c->lse, c->x, c->lse + c->s->n_head, c->s->n_head, c->s->hd);
}

static void best_head(void *ctx)
{
    const struct small *c = ctx;
    c->d->ops->best_head(c->d, c->host_x, c->s->n_ctx, c->s->n_head, c->s->n_ctx, 1, c->host_y);
}

static void topk(void *ctx)
{
    const struct small *c = ctx;
    c->d->ops->topk(c->d, c->host_x, c->s->n_ctx, CHOSEN, c->idx);
}

static void nearest(void *ctx)
{
    const struct small *c = ctx;
    c->d->ops->nearest(c->d, c->host_x, c->n_tok, c->host_x + MANY * c->s->hd, CHOSEN, c->s->hd,
                       c->idx, c->host_y);
}

/* ---- rows ---- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Floats in x and y */
static size_t room(const struct op_shape *s)
{
    const size_t rows = MANY * larger((size_t)s->n_ff, (size_t)s->n_head * (size_t)s->hd);
    const size_t logits = (size_t)s->n_head * (size_t)s->n_ctx;

    return larger(larger(rows, logits), (MANY + CHOSEN) * (size_t)s->hd);
}

static void small_close(struct small *c)
{
    cb_device_free(c->d, c->x);
    cb_device_free(c->d, c->y);
    cb_device_free(c->d, c->out);
    cb_device_free(c->d, c->cs);
    cb_device_free(c->d, c->lse);
    free(c->host_x);
    free(c->host_y);
    free(c->step);
    free(c->keys);
    free(c->idx);
    free(c->run);
}

/* Numbers in host_y that keep others as large as they were, where random ones would not */
static void fill(struct small *c, size_t n, size_t half)
{
    const struct op_shape *s = c->s;
    const size_t n_lse = WINDOW * (size_t)s->n_head;
    float *y = c->host_y;

    cb_op_fill(c->host_x, n);
    for (size_t i = 0; i < MANY * half; i++) {
        y[2 * i] = cosf((float)i);
        y[2 * i + 1] = sinf((float)i);
    }
    cb_device_copy(c->d, c->cs, y, MANY * half * 2 * sizeof *y);
    for (size_t i = 0; i < n_lse; i++)
        y[i] = logf((float)s->n_ctx);
    cb_device_copy(c->d, c->lse, y, n_lse * sizeof *y);
    for (size_t i = 0; i < n; i++) /* x * silu' is x again: see glu() */
        y[i] = 1 + expf(-c->host_x[i]);
    cb_device_copy(c->d, c->y, y, n * sizeof *y);
}

static int small_open(struct op_bench *b, struct small *c)
{
    const struct op_shape *s = c->s;
    const size_t n = room(s), half = (size_t)s->hd / 2;
    const size_t head = (size_t)s->n_ctx * (size_t)s->hd * sizeof(float);
    const size_t nq = (size_t)s->n_head * (size_t)s->hd;
    const size_t n_out = MANY * larger(nq, (size_t)s->n_embd);

    c->d = b->d;
    c->x = cb_op_floats(b, n);
    c->y = cb_op_floats(b, n);
    c->out = cb_op_floats(b, n_out);
    c->cs = cb_op_floats(b, MANY * half * 2);
    c->lse = cb_op_floats(b, WINDOW * (size_t)s->n_head);
    c->host_x = cb_alloc_aligned(n, sizeof *c->host_x);
    c->host_y = cb_alloc_aligned(n, sizeof *c->host_y);
    c->step = cb_calloc((size_t)s->n_ctx, sizeof *c->step);
    c->keys = cb_calloc((size_t)s->n_kv, head);
    c->idx = cb_calloc((size_t)s->n_ctx, sizeof *c->idx);
    c->run = cb_calloc((size_t)s->n_kv, sizeof *c->run);
    if (!c->x || !c->y || !c->out || !c->cs || !c->lse || !c->host_x || !c->host_y || !c->step ||
        !c->keys || !c->idx || !c->run)
        return CB_ENOMEM;
    if (c->d->ops->reserve(c->d, MANY, s->n_ff, s->n_ff, s->n_head, s->hd, s->n_ctx) < 0)
        return CB_ENOMEM;
    fill(c, n, half);
    for (int h = 0; h < s->n_kv; h++)
        c->run[h] = (struct kv_run){ .k = c->keys + (size_t)h * head,
                                     .v = c->keys + (size_t)h * head,
                                     .n = s->n_ctx };
    return CB_OK;
}

/* bytes, flop: of a call. Activations lie in caches, so memory bandwidth does not limit them. */
static int emit(struct op_bench *b, struct small *c, const char *op, void (*fn)(void *ctx),
                const char *shape, double bytes, double flop, int n_ctx)
{
    struct op_row row = { .op = op,
                          .model = c->s->model,
                          .n_tok = c->n_tok,
                          .n_ctx = n_ctx,
                          .bytes = bytes,
                          .flop = flop,
                          .peak = flop > 0 ? b->limit[LIMIT_F32] : 0 };

    if (!cb_op_picked(b, KIND_OP, op))
        return CB_OK;
    if (fn == store || fn == prepack || fn == score)
        row.type = cb_kv_type[c->type].name;
    if (fn == score && c->type != KV_F32 && b->limit[LIMIT_BF16] > 0)
        row.peak = b->limit[LIMIT_BF16]; /* two products in the time of one in f32 */
    row.s = cb_op_time(b, fn, c, 0);
    snprintf(row.shape, sizeof row.shape, "%s", shape);
    return cb_op_emit(b, &row);
}

/* The ops between the products of a layer */
static int between(struct op_bench *b, struct small *c)
{
    const struct op_shape *s = c->s;
    const int nq = s->n_head * s->hd;
    char shape[40];

    for (c->n_tok = 1; c->n_tok <= MANY; c->n_tok += MANY - 1) {
        snprintf(shape, sizeof shape, "rows of %d", s->n_embd);
        TRY(emit(b, c, "norm", norm, shape, 4.0 * s->n_embd * c->n_tok, 0, 0));
        snprintf(shape, sizeof shape, "%d heads of %d", s->n_head, s->hd);
        TRY(emit(b, c, "rope", rope, shape, 4.0 * nq * c->n_tok, 0, 0));
        snprintf(shape, sizeof shape, "rows of %d", s->n_ff);
        TRY(emit(b, c, "glu", glu, shape, 8.0 * s->n_ff * c->n_tok, 0, 0));
        snprintf(shape, sizeof shape, "rows of %d", s->n_embd);
        TRY(emit(b, c, "add", add, shape, 8.0 * s->n_embd * c->n_tok, 0, 0));
    }
    return CB_OK;
}

/* The ops that store and choose tokens */
static int choosing(struct op_bench *b, struct small *c)
{
    const struct op_shape *s = c->s;
    const double n = s->n_ctx;
    char shape[40];

    for (int t = 0; t < KV_TYPE_COUNT; t++) {
        c->type = (enum kv_type)t;
        if (!cb_op_picked(b, KIND_TYPE, cb_kv_type[t].name))
            continue;
        c->n_tok = MANY;
        snprintf(shape, sizeof shape, "rows of %d", s->hd);
        TRY(emit(b, c, "store", store, shape, 4.0 * s->hd * MANY, 0, 0));
        c->n_tok = s->n_ctx;
        if (c->d->ops->can_prepack && c->d->ops->can_prepack(c->d, c->type, c->type, s->hd))
            TRY(emit(b, c, "prepack", prepack, "keys, there and back",
                     2 * n * s->n_kv * (double)cb_kv_row_bytes(c->type, s->hd), 0, 0));
        c->n_tok = WINDOW;
        snprintf(shape, sizeof shape, "%d/%d heads of %d", s->n_head, s->n_kv, s->hd);
        TRY(emit(b, c, "score", score, shape, n * s->n_kv * (double)cb_kv_row_bytes(c->type, s->hd),
                 2.0 * s->hd * s->n_head * WINDOW * n, s->n_ctx));
    }
    c->n_tok = 1;
    snprintf(shape, sizeof shape, "%d heads", s->n_head);
    TRY(emit(b, c, "join", join, shape, 8.0 * s->n_head * s->hd, 0, 0));
    TRY(emit(b, c, "best_head", best_head, shape, 4 * n * s->n_head, 0, s->n_ctx));
    snprintf(shape, sizeof shape, "%d", CHOSEN);
    TRY(emit(b, c, "topk", topk, shape, 4 * n, 0, s->n_ctx));
    c->n_tok = 128;
    snprintf(shape, sizeof shape, "rows of %d", s->hd);
    return emit(b, c, "nearest", nearest, shape, 4.0 * s->hd * CHOSEN, 2.0 * s->hd * CHOSEN * 128,
                CHOSEN);
}

static const char *const names[] = { "norm",  "rope", "glu",       "add",  "store",   "prepack",
                                     "score", "join", "best_head", "topk", "nearest", NULL };

int cb_bench_small(struct op_bench *b)
{
    const int any = cb_op_any_picked(b, names);
    int err;

    for (const struct op_shape *s = cb_op_shape; any && s->model; s++) {
        struct small c = { .s = s };
        if (!cb_op_picked(b, KIND_MODEL, s->model))
            continue;
        err = small_open(b, &c);
        if (!err)
            err = between(b, &c);
        if (!err)
            err = choosing(b, &c);
        small_close(&c);
        TRY(err);
    }
    return CB_OK;
}
