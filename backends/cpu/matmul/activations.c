/* SPDX-License-Identifier: MIT */
/* activations.c - brings the activations of a pass into the forms that its matrices are multiplied
 * with. */
#include <string.h>

#include "pass.h"

/* Bytes of a token's activations in one form */
static size_t form_bytes(enum mm_form f, int n_in, int act16)
{
    if (f == MM_QUANT)
        return (size_t)(n_in + 31) / 32 * mm_rec_bytes(1 + act16);
    return (f == MM_HALVED ? mm_fours(n_in) : (size_t)n_in) * sizeof(float);
}

size_t cb_mm_token_bytes(const struct kern_mm *k, int n_in)
{
    return form_bytes(MM_QUANT, n_in, 0) + form_bytes(MM_PLAIN, n_in, 0) +
           (k->halve ? form_bytes(MM_HALVED, n_in, 0) : 0);
}

size_t cb_pass_token_bytes(const struct pass *p, unsigned forms)
{
    size_t n = 0;

    for (int f = 0; f < MM_FORMS; f++)
        n += forms >> f & 1 ? form_bytes((enum mm_form)f, p->n_in, p->act16) : 0;
    return (size_t)p->n_set * n;
}

void cb_pass_place(struct pass *p, unsigned forms, uint8_t *at)
{
    for (int f = 0; f < MM_FORMS; f++) {
        p->form[f] = forms >> f & 1 ? at : NULL;
        if (p->form[f])
            at += (size_t)p->n_tok * cb_pass_token_bytes(p, 1u << f);
    }
}

/* Activations of a set's tokens from `tok` on */
static uint8_t *form_at(const struct pass *p, int set, enum mm_form f, int tok)
{
    return p->form[f] +
           ((size_t)set * (size_t)p->n_tok + (size_t)tok) * form_bytes(f, p->n_in, p->act16);
}

static const float *tokens(const struct pass *p, int set, int tok)
{
    return p->x + (size_t)set * p->x_step + (size_t)tok * p->x_stride;
}

/* Each thread prepares a single token for itself: passing it between cores takes longer. */
static const void *own_token(const struct pass *p, int set, enum mm_form f, int thread)
{
    uint8_t *rec = cb_par_scratch(p->par, thread);
    uint8_t *halves = rec + form_bytes(MM_QUANT, p->n_in, p->act16);
    const float *x = tokens(p, set, 0);

    if (p->own[thread].pass != p->number - (uint64_t)set) {
        if (p->form[MM_QUANT] && p->act16)
            p->k->quantize_act16(x, p->n_in, rec, mm_rec_bytes(2));
        else if (p->form[MM_QUANT])
            p->k->quantize(x, 1, p->n_in, rec, mm_rec_bytes(1));
        if (p->form[MM_HALVED])
            p->k->halve(x, 1, p->n_in, halves);
        p->own[thread].pass = p->number - (uint64_t)set;
    }
    return f == MM_HALVED ? halves : rec;
}

const void *cb_pass_x(const struct pass *p, int set, int tile, enum mm_form f, int thread)
{
    if (p->n_tok > 1)
        return form_at(p, set, f, tile * p->tile);
    return f == MM_PLAIN ? tokens(p, set, 0) : own_token(p, set, f, thread);
}

/* x[width][n_in] -> [n_in][width] */
static void transpose(const float *x, size_t width, size_t n_in, float *out)
{
    for (size_t k = 0; k < n_in; k++)
        for (size_t i = 0; i < width; i++)
            out[k * width + i] = x[i * n_in + k];
}

/* A tile's tokens one after the other; the thread's work space holds a copy where they are apart
 */
static const float *adjacent(const struct pass *p, int set, int tile, int thread)
{
    const float *x = tokens(p, set, tile * p->tile);
    const size_t n = (size_t)p->n_in;
    float *copy;

    if (p->x_stride == n)
        return x;
    copy = cb_par_scratch(p->par, thread);
    for (size_t i = 0; i < (size_t)pass_tile_width(p, tile); i++)
        memcpy(copy + i * n, x + i * p->x_stride, n * sizeof *x);
    return copy;
}

/* A tile x[width][n_in] in the forms of float weights */
static void prepare_floats(const struct pass *p, int set, int tile, const float *x)
{
    const int width = pass_tile_width(p, tile), tok = tile * p->tile;

    if (p->form[MM_PLAIN])
        transpose(x, (size_t)width, (size_t)p->n_in,
                  (float *)(void *)form_at(p, set, MM_PLAIN, tok));
    if (p->form[MM_HALVED])
        p->k->halve(x, width, p->n_in, form_at(p, set, MM_HALVED, tok));
}

static void prepare_tile(void *ctx, int i, int thread)
{
    const struct pass *p = ctx;
    const int set = i / p->n_tile, tile = i % p->n_tile, width = pass_tile_width(p, tile);
    const float *x = adjacent(p, set, tile, thread);

    if (p->form[MM_QUANT])
        p->k->quantize(x, width, p->n_in, form_at(p, set, MM_QUANT, tile * p->tile),
                       mm_rec_bytes(width));
    prepare_floats(p, set, tile, x);
}

/* One token of a batch. A block's records of all tokens of a tile are adjacent. */
static void prepare_token(void *ctx, int i, int thread)
{
    const struct pass *p = ctx;
    const int set = i / p->n_tok, tok = i % p->n_tok, tile = tok / p->tile, first = tile * p->tile;
    const size_t rec = mm_rec_bytes(1 + p->act16), step = (size_t)pass_tile_width(p, tile) * rec;
    const float *x = tokens(p, set, tok);
    uint8_t *to = form_at(p, set, MM_QUANT, first) + (size_t)(tok - first) * rec;

    if (p->act16)
        p->k->quantize_batch(x, p->n_in, to, step);
    else
        p->k->quantize(x, 1, p->n_in, to, step);
    if (tok == first && pass_has_float(p))
        prepare_floats(p, set, tile, adjacent(p, set, tile, thread));
}

void cb_pass_prepare(struct pass *p)
{
    if (p->n_tok == 1)
        return;
    if (p->batch)
        cb_par_for(p->par, p->n_set * p->n_tok, prepare_token, p);
    else
        cb_par_for(p->par, p->n_set * p->n_tile, prepare_tile, p);
}
