/* SPDX-License-Identifier: MIT */
/* cl_matmul.c - weights on an OpenCL device, and products with them. A weight that does not fit
 * stays with the CPU, which multiplies a few tokens itself; for many tokens it is copied in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cl.h"

enum { TILE = 32, TILE_ITEMS = 64, FEW = 8, FEW_ITEMS = 32, STREAM_TOKENS = 64 };

/* w->packed of an OpenCL device */
struct cl_weight {
    struct cl_program *program;
    void *on;           /* NULL: the weight is with the CPU */
    struct weight host; /* as the CPU has loaded it; unused where it is on the device */
};

/* ---- load ---- */

static size_t weight_bytes(const struct weight *w)
{
    return cb_row_bytes(w->type, w->n_in) * (size_t)w->n_out;
}

/* A quarter of the working set is left to activations and mirrored rows. */
static int fits(const struct cl *c, size_t bytes)
{
    return c->traffic.used_bytes + bytes <= c->traffic.limit_bytes / 4 * 3 &&
           bytes <= c->most_block;
}

static int load_here(struct cl *c, const struct weight *w, struct cl_weight *cw)
{
    cw->on = cb_cl_alloc(c, weight_bytes(w));
    if (!cw->on)
        return CB_ENOMEM;
    c->traffic.weights_bytes += weight_bytes(w);
    cb_cl_send(c, cw->on, w->raw, weight_bytes(w));
    return cb_cl_check(c);
}

static void free_here(struct cl *c, const struct weight *w, struct cl_weight *cw)
{
    if (!cw->on)
        return;
    cb_cl_free(c, cw->on);
    c->traffic.weights_bytes -= weight_bytes(w);
}

int cb_cl_load(struct device *d, struct weight *w)
{
    struct cl *c = cb_cl_of(d);
    struct cl_weight *cw = cb_calloc(1, sizeof *cw);
    char options[32];
    int err = CB_OK;

    if (!cw)
        return CB_ENOMEM;
    cw->host = *w;
    if (w->type < DT_ENCODED) { /* the kernels read the types that the project writes */
        snprintf(options, sizeof options, "-DTYPE=%d", (int)w->type);
        cw->program = cb_cl_program(c, CL_MATMUL, options);
        err = cw->program ? CB_OK : CB_EUNSUPPORTED;
    }
    if (!err)
        err = cw->program && fits(c, weight_bytes(w)) ? load_here(c, w, cw)
                                                      : c->host.ops->load(&c->host, &cw->host);
    if (err) {
        free_here(c, w, cw);
        free(cw);
        return err;
    }
    w->packed = cw;
    w->packed_bytes = cw->on ? weight_bytes(w) : cw->host.packed_bytes;
    if (!cw->on)
        cb_cl_say(c, cw->program ? 0 : 2,
                  cw->program
                      ? "not all weights fit into the working set; the CPU multiplies the others"
                      : "the CPU multiplies the weights of types that the device cannot read");
    return CB_OK;
}

void cb_cl_unload(struct device *d, struct weight *w)
{
    struct cl *c = cb_cl_of(d);
    struct cl_weight *cw = w->packed;

    if (!cw)
        return;
    if (cw->on)
        free_here(c, w, cw);
    else
        c->host.ops->unload(&c->host, &cw->host);
    free(cw);
    w->packed = NULL;
}

/* ---- products ---- */

static size_t out_bytes(const struct mm *mm, int n_tok)
{
    return ((size_t)(n_tok - 1) * (size_t)mm->y_stride + (size_t)mm->w->n_out) * sizeof(float);
}

static void multiply(struct cl *c, const struct mm *mm, const void *weight, const float *x,
                     int n_tok)
{
    const struct weight *w = mm->w;
    const struct cl_weight *cw = w->packed;
    const int whole = !mm->add && (n_tok == 1 || mm->y_stride == w->n_out);
    float *y = whole ? cb_cl_out(c, mm->y, out_bytes(mm, n_tok))
                     : cb_cl_inout(c, mm->y, out_bytes(mm, n_tok));
    const float *bias = cb_cl_in(c, mm->bias, (size_t)w->n_out * sizeof(float));
    const cl_long row = (cl_long)cb_row_bytes(w->type, w->n_in);
    const size_t n_out = (size_t)w->n_out, n = (size_t)n_tok;

    if (mm->bits || n_tok <= FEW) {
        const size_t groups[3] = { n_out, n_tok == 1 ? 1 : (n + FEW - 1) / FEW, 1 };
        const struct cl_arg arg[] = { CL_P(weight), CL_L(row),          CL_I(w->n_in),
                                      CL_P(x),      CL_I(n_tok),        CL_P(bias),
                                      CL_P(y),      CL_I(mm->y_stride), CL_I(mm->add) };
        cb_cl_run(c, cw->program, n_tok == 1 ? "few_1" : "few_8", groups, FEW_ITEMS, arg, 9, NULL);
    } else {
        const size_t groups[3] = { (n_out + TILE - 1) / TILE, (n + TILE - 1) / TILE, 1 };
        const struct cl_arg arg[] = { CL_P(weight),   CL_L(row), CL_I(w->n_in),
                                      CL_I(w->n_out), CL_P(x),   CL_I(n_tok),
                                      CL_P(bias),     CL_P(y),   CL_I(mm->y_stride),
                                      CL_I(mm->add) };
        cb_cl_run(c, cw->program, "tile", groups, TILE_ITEMS, arg, 10, NULL);
    }
}

/* The CPU's product of a weight that it has */
static void multiply_on_host(struct cl *c, const struct mm *mm, const float *x, int n_tok)
{
    const struct cl_weight *cw = mm->w->packed;
    const size_t x_bytes = (size_t)mm->w->n_in * (size_t)n_tok * sizeof(float);
    float *hx = cb_cl_to_host(c, x, x_bytes);
    float *hy = cb_cl_to_host(c, mm->y, out_bytes(mm, n_tok));
    const size_t bias_bytes = (size_t)mm->w->n_out * sizeof(float);
    float *bias = cb_cl_to_host(c, mm->bias, bias_bytes);
    const struct mm host = { &cw->host, bias, hy, mm->y_stride, mm->add, mm->bits };

    if (!c->status)
        c->host.ops->matmul(&c->host, &host, 1, hx, n_tok);
    cb_cl_from_host(c, mm->y, hy, out_bytes(mm, n_tok));
    if (hx != x)
        free(hx);
    if (bias != mm->bias)
        free(bias);
}

/* Where the device finds a weight: resident, or copied in for many tokens. NULL: the CPU does it */
static const void *weight_on(struct cl *c, const struct mm *mm, int n_tok)
{
    const struct cl_weight *cw = mm->w->packed;
    const size_t bytes = weight_bytes(mm->w);

    if (cw->on)
        return cw->on;
    if (!cw->program || n_tok < STREAM_TOKENS || mm->bits || !cb_cl_stage_fits(c, bytes))
        return NULL;
    return cb_cl_in(c, mm->w->raw, bytes);
}

void cb_cl_matmul(struct device *d, const struct mm *mm, int n, const float *x, int n_tok)
{
    struct cl *c = cb_cl_of(d);
    const size_t x_bytes = (size_t)mm->w->n_in * (size_t)n_tok * sizeof(float);
    const float *on = NULL;

    if (n_tok < 1)
        return;
    for (int i = 0; i < n; i++) {
        const void *w = weight_on(c, &mm[i], n_tok);
        if (!w) {
            multiply_on_host(c, &mm[i], x, n_tok);
            continue;
        }
        on = on ? on : cb_cl_in(c, x, x_bytes);
        multiply(c, &mm[i], w, on, n_tok);
        if (w != ((const struct cl_weight *)mm[i].w->packed)->on || c->n_back == CL_MOST_BACK) {
            cb_cl_done(c); /* a streamed weight's place serves the next one */
            on = NULL;
        }
    }
    cb_cl_done(c);
}

void cb_cl_matmul_glu(struct device *d, const struct mm *mm, enum act_kind act, const float *x,
                      int n_tok)
{
    cb_cl_matmul(d, mm, 2, x, n_tok);
    cb_cl_glu(d, act, mm[0].y, mm[1].y, mm->w->n_out, n_tok);
}

/* Rows of the raw matrix, which lies in the host's memory; a feed begins with them. */
void cb_cl_get_rows(struct device *d, const struct weight *w, const int32_t *ids, int n, float *y)
{
    struct cl *c = cb_cl_of(d);
    const size_t bytes = (size_t)n * (size_t)w->n_in * sizeof(float);
    float *host = cb_cl_is_on(c, y) ? cb_alloc_aligned(bytes, 1) : y;

    c->feed++;
    if (!host) {
        cb_cl_fail(c, "rows", CL_OUT_OF_HOST_MEMORY);
        return;
    }
    c->host.ops->get_rows(&c->host, w, ids, n, host);
    cb_cl_from_host(c, y, host, bytes);
}
