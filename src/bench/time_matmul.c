/* SPDX-License-Identifier: MIT */
/* time_matmul.c - times matrix products: each type of weights and the matrices of known models, for
 * one token (with 16-bit activations, as in decoding), one token of each of several sessions, and
 * many tokens; gate and up together; some rows of the output matrix. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank/pages.h"
#include "base/err.h"
#include "time_ops.h"

enum {
    SAMPLE_ROWS = 64, /* random rows; the others repeat them */
    MOST_COPIES = 1024,
    MANY = 512,  /* tokens of a prompt */
    FEW = 32,    /* instead of MANY, where MANY takes too long */
    APART = 256, /* distance between rows, where only some are wanted */
    GROUP = 16,  /* rows that are read together */
    MIB = 1 << 20
};
static const size_t raw_max = (size_t)768 << 20; /* larger matrices are left out */
static const double enough_s = 0.3;              /* a call of fn should take little longer */

/* Sessions that decode together, and bits of their activations */
static const struct {
    int n_tok, bits;
} batch[] = { { 4, 16 }, { 16, 16 }, { 64, 16 }, { 4, 8 }, { 16, 8 }, { 64, 8 } };

struct products {
    struct device *d;
    struct weight *w; /* [n] */
    int n, n_tok, bits;
    const char *form; /* name of the batch in its row; else "" */
    float *x, *y;     /* y has room for two products */
    int32_t *rows;    /* [n_rows] indices, APART apart */
    int n_rows, first;
};

static struct mm product(const struct products *p, int i, float *y)
{
    const struct weight *w = &p->w[i % p->n];
    return (struct mm){ .w = w, .y = y, .y_stride = w->n_out, .bits = p->bits };
}

static void multiply(void *ctx)
{
    const struct products *p = ctx;

    for (int i = 0; i < p->n; i++) {
        const struct mm m = product(p, i, p->y);
        p->d->ops->matmul(p->d, &m, 1, p->x, p->n_tok);
    }
}

static void multiply_glu(void *ctx)
{
    const struct products *p = ctx;

    for (int i = 0; i < p->n; i++) { /* each matrix twice */
        const struct mm m[] = { product(p, 2 * i, p->y),
                                product(p, 2 * i + 1, p->y + (size_t)p->n_tok * p->w->n_out) };
        p->d->ops->matmul_glu(p->d, m, ACT_SILU, p->x, p->n_tok);
    }
}

/* Multiplies other rows each time, else caches would hold them. */
static void multiply_rows(void *ctx)
{
    struct products *p = ctx;

    for (int i = 0; i < p->n; i++) {
        const struct mm m = product(p, i, p->y);
        p->first = (p->first + GROUP) % APART;
        for (int r = 0; r < p->n_rows; r++)
            p->rows[r] = p->first + r * APART;
        p->d->ops->matmul_rows(p->d, &m, p->rows, p->n_rows, p->x);
    }
}

/* Fills raw[n_out] rows of n_in numbers. */
static int fill_rows(enum dtype t, int n_in, int n_out, uint8_t *raw)
{
    const size_t all = cb_row_bytes(t, (int64_t)n_in * n_out);
    const size_t n = (size_t)n_in * SAMPLE_ROWS, sample = cb_row_bytes(t, (int64_t)n);
    float *x = cb_calloc(n, sizeof *x);

    if (!x)
        return CB_ENOMEM;
    cb_op_fill(x, n);
    if (cb_dtype[t].from_f32)
        cb_dtype[t].from_f32(x, raw, (int64_t)n);
    else /* any two bytes from 32 to 63 are a half of ordinary size */
        for (size_t i = 0; i < sample; i++)
            raw[i] = (uint8_t)(32 + (int)(fabsf(x[i % n]) * 1000) % 32);
    free(x);
    for (size_t at = sample; at < all; at += sample)
        memcpy(raw + at, raw, all - at < sample ? all - at : sample);
    return CB_OK;
}

/* n_out: rows that a call multiplies; bytes: packed weights that it reads */
static int emit(struct op_bench *b, const struct op_shape *s, const char *op, const char *what,
                const struct products *p, double n_out, double bytes, double seconds)
{
    const struct weight *w = p->w;
    const int plain = cb_dtype[w->type].block == 1 || strcmp(b->matmul, "own") != 0;
    struct op_row row = { .op = op,
                          .matmul = b->matmul,
                          .type = cb_dtype[w->type].name,
                          .model = s->model,
                          .n_tok = p->n_tok,
                          .s = seconds,
                          .bytes = bytes,
                          .flop = 2.0 * w->n_in * n_out * p->n_tok,
                          .read = b->limit[LIMIT_READ],
                          .peak = b->limit[LIMIT_F32] };

    if (!plain && b->limit[LIMIT_INT8] > 0)
        row.peak = b->limit[LIMIT_INT8];
    snprintf(row.shape, sizeof row.shape, "%s %dx%d%s", what, w->n_out, w->n_in, p->form);
    return cb_op_emit(b, &row);
}

static int time_rows(struct op_bench *b, const struct op_shape *s, struct products *p)
{
    const double group_bytes = (double)p->w->packed_bytes / p->w->n_out * GROUP;

    p->n_rows = p->w->n_out / APART;
    p->rows = cb_calloc((size_t)p->n_rows, sizeof *p->rows);
    if (!p->rows)
        return CB_ENOMEM;
    return emit(b, s, "matmul_rows", "1 in 256 of logits", p, p->n_rows, group_bytes * p->n_rows,
                cb_op_time(b, multiply_rows, p, 0) / p->n);
}

/* Is any op wanted that takes this matrix? */
static int wanted(const struct op_bench *b, const char *what)
{
    return cb_op_picked(b, KIND_OP, "matmul") ||
           (!strcmp(what, "up") && cb_op_picked(b, KIND_OP, "matmul_glu")) ||
           (!strcmp(what, "logits") && cb_op_picked(b, KIND_OP, "matmul_rows"));
}

/* Times p->n_tok tokens with each op that takes the matrix. */
static int time_tokens(struct op_bench *b, const struct op_shape *s, const char *what,
                       struct products *p)
{
    const double n_out = p->w->n_out, bytes = (double)p->w->packed_bytes;

    if (cb_op_picked(b, KIND_OP, "matmul"))
        TRY(emit(b, s, "matmul", what, p, n_out, bytes, cb_op_time(b, multiply, p, 0) / p->n));
    if (cb_op_picked(b, KIND_OP, "matmul_glu") && !strcmp(what, "up"))
        TRY(emit(b, s, "matmul_glu", "gate, up", p, 2 * n_out, 2 * bytes,
                 cb_op_time(b, multiply_glu, p, 0) / p->n));
    if (cb_op_picked(b, KIND_OP, "matmul_rows") && !strcmp(what, "logits") && p->n_tok == 1 &&
        b->d->ops->matmul_rows)
        TRY(time_rows(b, s, p));
    return CB_OK;
}

/* Times one token, then batches, with as many matrices as a call can multiply in a short time. */
static int time_decode(struct op_bench *b, const struct op_shape *s, const char *what,
                       struct products *p)
{
    const int n = p->n;
    double one_s;

    p->n_tok = 1;
    p->bits = 16;
    TRY(time_tokens(b, s, what, p));
    one_s = cb_op_time(b, multiply, p, 1) / n;
    for (size_t i = 0; i < sizeof batch / sizeof *batch; i++) {
        const double most = enough_s / (one_s * batch[i].n_tok);
        p->n_tok = batch[i].n_tok;
        p->bits = batch[i].bits;
        p->form = p->bits == 16 ? " batch" : " batch, 8 bits";
        p->n = most >= n ? n : most > 1 ? (int)most : 1;
        TRY(time_tokens(b, s, what, p));
    }
    p->form = "";
    p->bits = 0;
    return CB_OK;
}

/* Libraries multiply from 16 tokens on, so one token is timed with our own kernels only. */
static int time_all(struct op_bench *b, const struct op_shape *s, const char *what,
                    struct products *p)
{
    double few_s;

    if (!strcmp(b->matmul, "own"))
        TRY(time_decode(b, s, what, p));
    p->n = 1;
    p->n_tok = FEW;
    few_s = cb_op_time(b, multiply, p, 1);
    if (few_s * MANY / FEW < 0.5 &&
        p->w->n_out < 32768) /* a prompt never needs the logits of all tokens */
        p->n_tok = MANY;
    return time_tokens(b, s, what, p);
}

static int run_matrix(struct op_bench *b, const struct op_shape *s, const char *what, enum dtype t,
                      int n_in, int n_out)
{
    const size_t bytes = cb_row_bytes(t, (int64_t)n_in * n_out);
    const int copies = 1 + (int)(b->cold_bytes / bytes);
    struct products p = { .d = b->d, .n = copies < MOST_COPIES ? copies : MOST_COPIES, .form = "" };
    const size_t raw_bytes =
        cb_row_bytes(t, (int64_t)n_in * (n_out > SAMPLE_ROWS ? n_out : SAMPLE_ROWS));
    uint8_t *raw = NULL;
    int err = CB_ENOMEM;

    if (bytes > raw_max)
        return CB_OK;
    TRY(cb_op_reserve(raw_bytes, &raw));
    p.w = cb_calloc((size_t)p.n, sizeof *p.w);
    p.x = cb_op_floats(b, MANY * (size_t)n_in);
    p.y = cb_device_alloc(b->d, 2 * MANY * (size_t)n_out, sizeof *p.y);
    if (p.w && p.x && p.y)
        err = fill_rows(t, n_in, n_out, raw);
    if (!err && b->d->ops->reserve(b->d, MANY, n_in, n_out, 1, 64, 1) < 0)
        err = CB_ENOMEM;
    for (int i = 0; !err && i < p.n; i++) {
        p.w[i] =
            (struct weight){ .name = "w", .type = t, .n_in = n_in, .n_out = n_out, .raw = raw };
        err = b->d->ops->load(b->d, &p.w[i]);
    }
    if (!err) {
        const int n = p.n;
        err = time_all(b, s, what, &p);
        p.n = n;
    }
    for (int i = 0; p.w && i < p.n; i++)
        b->d->ops->unload(b->d, &p.w[i]);
    cb_pages_release(raw, raw_bytes);
    free(p.w);
    cb_device_free(b->d, p.x);
    cb_device_free(b->d, p.y);
    free(p.rows);
    return err;
}

static int run_type(struct op_bench *b, const struct op_shape *s, enum dtype t)
{
    const struct {
        const char *what;
        int n_in, n_out;
    } m[] = { { "q", s->n_embd, s->n_head * s->hd },
              { "k", s->n_embd, s->n_kv * s->hd },
              { "up", s->n_embd, s->n_ff },
              { "down", s->n_ff, s->n_embd },
              { "logits", s->n_embd, s->n_vocab } };

    for (size_t i = 0; i < sizeof m / sizeof *m; i++)
        if (m[i].n_in % cb_dtype[t].block == 0 && wanted(b, m[i].what))
            TRY(run_matrix(b, s, m[i].what, t, m[i].n_in, m[i].n_out));
    return CB_OK;
}

int cb_bench_matmul(struct op_bench *b)
{
    for (const struct op_shape *s = cb_op_shape; s->model; s++)
        for (int t = 0; t < DT_COUNT; t++)
            if (cb_op_picked(b, KIND_MODEL, s->model) &&
                cb_op_picked(b, KIND_TYPE, cb_dtype[t].name))
                TRY(run_type(b, s, (enum dtype)t));
    return CB_OK;
}
