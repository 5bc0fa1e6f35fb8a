/* SPDX-License-Identifier: MIT */
/* gpu_matmul.c - weights on an accelerator, and products with them. A weight that does not fit
 * stays with the CPU, or goes to it when work space needs its place (gpu_share.c). The CPU
 * multiplies a few tokens itself; for many tokens the weight is copied in, ahead of need where the
 * engine names the next layer (gpu_stream.c). */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "gpu_ahead.h"
#include "gpu_gemm.h"
#include "gpu_split.h"
#include "gpu_stream.h"

enum { TILE = 64, TILE_ITEMS = 64, FEW = 8, FEW_ITEMS = 32 };
enum { HALVES_ITEMS = 256 };
enum { CODE_ROWS = 16 };

/* ---- load ---- */

/* A quarter of the working set is left to activations and mirrored rows. */
static int fits(const struct gpu *g, size_t bytes)
{
    return g->traffic.used_bytes + bytes <= g->traffic.limit_bytes / 4 * 3 &&
           bytes <= g->most_block;
}

static int load_here(struct gpu *g, struct gpu_weight *cw)
{
    TRY(cb_gpu_weight_load(g, cw));
    return cb_gpu_check(g);
}

int cb_gpu_load(struct device *d, struct weight *w)
{
    struct gpu *g = cb_gpu_of(d);
    struct gpu_weight *cw = cb_calloc(1, sizeof *cw);
    int err = CB_OK;

    if (!cw)
        return CB_ENOMEM;
    cw->host = *w;
    if (w->type < DT_ENCODED) { /* the kernels read the types that the project writes */
        cw->program = cb_gpu_program(g, GPU_MATMUL, (struct gpu_options){ .type = (int)w->type });
        err = cw->program ? CB_OK : CB_EUNSUPPORTED;
    }
    if (!err)
        err = cw->program && fits(g, cb_gpu_weight_bytes(w))
                  ? load_here(g, cw)
                  : g->host.ops->load(&g->host, &cw->host);
    if (err) {
        cb_gpu_weight_unload(g, cw);
        free(cw);
        return err;
    }
    w->packed = cw;
    w->packed_bytes = cw->on ? cb_gpu_weight_bytes(w) : cw->host.packed_bytes;
    if (!cw->program)
        cb_gpu_say(g, NOTE_TYPES,
                   "the CPU multiplies the weights of types that the device cannot read");
    else if (!cw->on)
        cb_gpu_weights_say(g);
    return CB_OK;
}

void cb_gpu_unload(struct device *d, struct weight *w)
{
    struct gpu *g = cb_gpu_of(d);
    struct gpu_weight *cw = w->packed;

    if (!cw)
        return;
    cb_gpu_stream_close(g);
    if (!cw->on)
        g->host.ops->unload(&g->host, &cw->host);
    cb_gpu_weight_unload(g, cw);
    free(cw);
    w->packed = NULL;
}

/* ---- products ---- */

static size_t out_bytes(const struct mm *mm, int n_tok)
{
    return ((size_t)(n_tok - 1) * (size_t)mm->y_stride + (size_t)mm->w->n_out) * sizeof(float);
}

/* What products of a call multiply by, on the device */
struct operand {
    const float *x;         /* [n_tok][n_in]; NULL: it is not there yet */
    const void *half;       /* the same as halves (as_halves.cl); NULL: not yet */
    const float *scale;     /* [n_tok] of these */
    struct gpu_split split; /* the same as sums of two halves */
};

/* Chunks of a prompt take one kernel, short ones too, so that results do not depend on chunks: one
 * that multiplies small matrices of halves where the device can. A half has not the digits of
 * weights of F32. */
static int uses_mma(const struct gpu *g, const struct mm *mm)
{
    return g->driver->has_mma && !mm->bits && mm->w->type != DT_F32;
}

static void make_halves(struct gpu *g, const struct gpu_weight *cw, struct operand *o, int n_tok)
{
    const int n_in = cw->host.n_in;
    const size_t row = ((size_t)n_in + 31) / 32 * 64;
    const size_t groups[3] = { (size_t)n_tok, 1, 1 };

    if (o->half || g->status)
        return;
    o->half = cb_gpu_scratch(g, row * (size_t)n_tok);
    o->scale = cb_gpu_scratch(g, (size_t)n_tok * sizeof(float));
    const struct gpu_arg arg[] = { GPU_P(o->x), GPU_I(n_in), GPU_P(o->half), GPU_P(o->scale) };
    cb_gpu_run(g, cw->program, "halves", groups, HALVES_ITEMS, arg, 4, NULL);
}

/* 1: the product writes all of y's bytes and reads none. */
static int is_whole(const struct mm *mm, int n_tok)
{
    return !mm->add && (n_tok == 1 || mm->y_stride == mm->w->n_out);
}

static float *result_on(struct gpu *g, const struct mm *mm, int n_tok)
{
    return is_whole(mm, n_tok) ? cb_gpu_out(g, mm->y, out_bytes(mm, n_tok))
                               : cb_gpu_inout(g, mm->y, out_bytes(mm, n_tok));
}

static const float *bias_on(struct gpu *g, const struct mm *mm)
{
    return cb_gpu_constant(g, mm->bias, (size_t)mm->w->n_out * sizeof(float));
}

/* n products that one launch computes; weight: the first one's */
static void multiply_halves(struct gpu *g, const struct mm *mm, int n, const void *weight,
                            struct operand *x, int n_tok)
{
    struct gpu_product p[GPU_AT_ONCE];

    for (int i = 0; i < n; i++) {
        const struct gpu_weight *cw = mm[i].w->packed;
        p[i] = (struct gpu_product){ &mm[i], i ? cw->on : weight, bias_on(g, &mm[i]),
                                     result_on(g, &mm[i], n_tok) };
    }
    make_halves(g, mm->w->packed, x, n_tok);
    cb_gpu_gemm(g, p, n, &(struct gpu_tokens){ x->half, x->scale, n_tok });
}

static void multiply(struct gpu *g, const struct mm *mm, const void *weight, struct operand *x,
                     int n_tok)
{
    const struct weight *w = mm->w;
    const struct gpu_weight *cw = w->packed;
    float *y = result_on(g, mm, n_tok);
    const float *bias = bias_on(g, mm);
    const size_t row = cb_row_bytes(w->type, w->n_in);
    const size_t n_out = (size_t)w->n_out, n = (size_t)n_tok;

    if (mm->bits) {
        const size_t groups[3] = { n_out, n_tok == 1 ? 1 : (n + FEW - 1) / FEW, 1 };
        const struct gpu_arg arg[] = { GPU_P(weight), GPU_L(row),          GPU_I(w->n_in),
                                       GPU_P(x->x),   GPU_I(n_tok),        GPU_P(bias),
                                       GPU_P(y),      GPU_I(mm->y_stride), GPU_I(mm->add) };
        cb_gpu_run(g, cw->program, n_tok == 1 ? "few_1" : "few_8", groups, FEW_ITEMS, arg, 9, NULL);
    } else {
        const size_t groups[3] = { (n + TILE - 1) / TILE, (n_out + TILE - 1) / TILE, 1 };
        const struct gpu_arg arg[] = { GPU_P(weight),   GPU_L(row),  GPU_I(w->n_in),
                                       GPU_I(w->n_out), GPU_P(x->x), GPU_I(n_tok),
                                       GPU_P(bias),     GPU_P(y),    GPU_I(mm->y_stride),
                                       GPU_I(mm->add) };
        cb_gpu_run(g, cw->program, "tile", groups, TILE_ITEMS, arg, 10, NULL);
    }
}

/* ---- decoded tokens ---- */

/* Weights of codes take a kernel that multiplies small matrices, where the device can; one token
 * too, so that a batch has the bits of its tokens. */
static int uses_codes(const struct gpu *g, const struct mm *mm)
{
    return g->driver->has_mma && mm->bits && mm->w->type > DT_BF16 && mm->w->n_in % 32 == 0;
}

/* How many of n such products one launch computes: those that differ in rows and results alone */
static int codes_at_once(const struct gpu *g, const struct mm *mm, int n)
{
    int i = 1;

    while (i < n && i < GPU_AT_ONCE && ((const struct gpu_weight *)mm[i].w->packed)->on &&
           uses_codes(g, &mm[i]) && mm[i].w->type == mm->w->type && mm[i].w->n_in == mm->w->n_in &&
           mm[i].y_stride == mm->y_stride && mm[i].add == mm->add)
        i++;
    return i;
}

/* How many of n products one launch computes. Their weights stay until the op has ended. */
static int at_once(struct gpu *g, const struct mm *mm, int n, int n_tok)
{
    const int k = uses_codes(g, mm) ? codes_at_once(g, mm, n)
                  : uses_mma(g, mm) ? cb_gpu_gemm_at_once(g, mm, n, n_tok)
                                    : 1;

    for (int i = 0; i < GPU_AT_ONCE; i++)
        g->multiplied[i] = i < k ? mm[i].w->packed : NULL;
    return k;
}

/* How a weight's type is multiplied (CODES in few_codes.cl): blocks of 32 elements that a warp
 * multiplies at a time, of long rows as many as have room */
struct form {
    const char *few, *many;
    int items, step, long_step;
};

static const struct form *form_of(enum dtype t)
{
    static const struct form form[] = {
        [DT_Q4_0] = { "codes_8_tok_q4_0", "codes_32_tok_q4_0", 256, 4, 8 },
        [DT_Q4_1] = { "codes_8_tok_q4_1", "codes_32_tok_q4_1", 256, 4, 8 },
        [DT_Q5_0] = { "codes_8_tok_q5_0", "codes_32_tok_q5_0", 256, 4, 4 },
        [DT_Q5_1] = { "codes_8_tok_q5_1", "codes_32_tok_q5_1", 256, 4, 4 },
        [DT_Q8_0] = { "codes_8_tok_q8_0", "codes_32_tok_q8_0", 256, 4, 4 },
        [DT_Q4_K] = { "codes_8_tok_q4_k", "codes_32_tok_q4_k", 128, 8, 8 },
        [DT_Q5_K] = { "codes_8_tok_q5_k", "codes_32_tok_q5_k", 128, 8, 8 },
        [DT_Q6_K] = { "codes_8_tok_q6_k", "codes_32_tok_q6_k", 128, 8, 8 },
    };
    return &form[t];
}

/* n products that one launch computes */
static void multiply_codes(struct gpu *g, const struct mm *mm, int n, struct operand *x, int n_tok)
{
    const struct weight *w = mm->w;
    const struct gpu_weight *cw = w->packed;
    const struct form *f = form_of(w->type);
    const int wide = n_tok > 8;
    size_t groups[3] = { wide ? ((size_t)n_tok + 31) / 32 : 1, 0, 1 };
    struct gpu_arg of[4 * GPU_AT_ONCE] = { 0 }; /* weights, rows, biases, results */

    for (int i = 0; i < GPU_AT_ONCE; i++) {
        of[GPU_AT_ONCE + i] = (struct gpu_arg)GPU_I(0);
        if (i >= n)
            continue;
        of[i].as.p = ((const struct gpu_weight *)mm[i].w->packed)->on;
        of[GPU_AT_ONCE + i].as.i = mm[i].w->n_out;
        of[3 * GPU_AT_ONCE + i].as.p = result_on(g, &mm[i], n_tok);
        of[2 * GPU_AT_ONCE + i].as.p = bias_on(g, &mm[i]);
        groups[1] += ((size_t)mm[i].w->n_out + CODE_ROWS - 1) / CODE_ROWS;
    }
    if (!x->split.x && !cb_gpu_split(g, x->x, w->n_in, n_tok, &x->split))
        return;
    const struct gpu_arg arg[] = { of[0],
                                   of[1],
                                   of[2],
                                   of[3],
                                   of[4],
                                   of[5],
                                   GPU_L(cb_row_bytes(w->type, w->n_in)),
                                   GPU_I(w->n_in),
                                   GPU_I(w->n_in >= 2048 ? f->long_step : f->step),
                                   GPU_P(x->split.to),
                                   GPU_P(x->split.scale),
                                   GPU_I(n_tok),
                                   of[6],
                                   of[7],
                                   of[8],
                                   of[9],
                                   of[10],
                                   of[11],
                                   GPU_I(mm->y_stride),
                                   GPU_I(mm->add) };
    cb_gpu_run(g, cw->program, wide ? f->many : f->few, groups, (size_t)f->items, arg, 20, NULL);
}

/* The CPU's product of a weight that it has */
static void multiply_on_host(struct gpu *g, const struct mm *mm, const float *x, int n_tok)
{
    const struct gpu_weight *cw = mm->w->packed;
    const size_t x_bytes = (size_t)mm->w->n_in * (size_t)n_tok * sizeof(float);
    float *hx = cb_gpu_to_host(g, x, x_bytes);
    float *hy = is_whole(mm, n_tok) ? cb_gpu_host_for(g, mm->y, out_bytes(mm, n_tok))
                                    : cb_gpu_to_host(g, mm->y, out_bytes(mm, n_tok));
    const size_t bias_bytes = (size_t)mm->w->n_out * sizeof(float);
    float *bias = cb_gpu_to_host(g, mm->bias, bias_bytes);
    const struct mm host = { &cw->host, bias, hy, mm->y_stride, mm->add, mm->bits };

    if (!g->status)
        g->host.ops->matmul(&g->host, &host, 1, hx, n_tok);
    cb_gpu_from_host(g, mm->y, hy, out_bytes(mm, n_tok));
    if (hx != x)
        free(hx);
    if (bias != mm->bias)
        free(bias);
}

/* Where the device finds a weight: resident, or copied in for many tokens. NULL: the CPU does it.
 * *in_stage: only until the op ends */
static const void *weight_on(struct gpu *g, const struct mm *mm, int n_tok, int *in_stage)
{
    struct gpu_weight *cw = mm->w->packed;
    const size_t bytes = cb_gpu_weight_bytes(mm->w);
    const void *on = cw->on;
    void *place;

    *in_stage = 0;
    if (on || !cw->program || n_tok < STREAM_TOKENS || mm->bits)
        return on;
    on = cb_gpu_stream_find(g, mm->w);
    if (on || !cb_gpu_stage_fits(g, bytes))
        return on;
    *in_stage = 1;
    place = cb_gpu_room_for(g, bytes);
    if (place)
        cb_gpu_weight_send(g, cw, place, 0);
    return place;
}

void cb_gpu_matmul(struct device *d, const struct mm *mm, int n, const float *x, int n_tok)
{
    struct gpu *g = cb_gpu_of(d);
    const size_t x_bytes = (size_t)mm->w->n_in * (size_t)n_tok * sizeof(float);
    struct operand on = { 0 };

    if (n_tok < 1)
        return;
    for (int i = 0, k; i < n; i += k) {
        int in_stage;
        const void *w = weight_on(g, &mm[i], n_tok, &in_stage);
        k = 1;
        g->multiplied[0] = mm[i].w->packed;
        if (!w) {
            cb_gpu_rows_ahead_next(g);
            multiply_on_host(g, &mm[i], x, n_tok);
            continue;
        }
        on.x = on.x ? on.x : cb_gpu_in(g, x, x_bytes);
        k = at_once(g, &mm[i], n - i, n_tok);
        if (uses_codes(g, &mm[i]))
            multiply_codes(g, &mm[i], k, &on, n_tok);
        else if (uses_mma(g, &mm[i]))
            multiply_halves(g, &mm[i], k, w, &on, n_tok);
        else
            multiply(g, &mm[i], w, &on, n_tok);
        cb_gpu_stream_next(g);
        cb_gpu_rows_ahead_next(g);
        if (in_stage || g->n_back > GPU_MOST_BACK - GPU_AT_ONCE) {
            cb_gpu_done(g); /* a streamed weight's place serves the next one */
            on = (struct operand){ 0 };
        }
    }
    memset(g->multiplied, 0, sizeof g->multiplied);
    cb_gpu_done(g);
}

void cb_gpu_matmul_glu(struct device *d, const struct mm *mm, enum act_kind act, const float *x,
                       int n_tok)
{
    cb_gpu_matmul(d, mm, 2, x, n_tok);
    cb_gpu_glu(d, act, mm[0].y, mm[1].y, mm->w->n_out, n_tok);
}

/* Rows of the raw matrix, which lies in the host's memory; a feed begins with them. */
void cb_gpu_get_rows(struct device *d, const struct weight *w, const int32_t *ids, int n, float *y)
{
    struct gpu *g = cb_gpu_of(d);
    const size_t bytes = (size_t)n * (size_t)w->n_in * sizeof(float);
    float *host = cb_gpu_is_on(g, y) ? cb_alloc_aligned(bytes, 1) : y;

    g->feed++;
    if (!host) {
        cb_gpu_fail_memory(g, "rows");
        return;
    }
    g->host.ops->get_rows(&g->host, w, ids, n, host);
    cb_gpu_from_host(g, y, host, bytes);
}
