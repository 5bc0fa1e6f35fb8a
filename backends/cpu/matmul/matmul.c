/* SPDX-License-Identifier: MIT */
/* matmul.c - matrix products of the CPU device. Weights are packed at load (load.c) and activations
 * quantised once a call (activations.c). The threads share the groups of rows (in long calls also
 * ranges of tokens, shares.c). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cpu/kern.h"
#include "cpu/vector/kern_vec.h"
#include "pass.h"
#include "provider.h"

enum {
    PASS_MAX = 768,         /* tokens whose activations are prepared at once */
    PASS_BYTES = 16 << 20,  /* most bytes of those activations */
    PASS_MIN = 96,          /* fewest tokens */
    PAIR_BYTES = 768 << 10, /* most bytes of two panels */
    BATCH_TILE = 16         /* tokens of a batch that one pass over the weights multiplies */
};

static int grow_x(struct cpu *c, size_t bytes)
{
    void *x;

    if (bytes <= c->x_bytes)
        return CB_OK;
    x = cb_alloc_aligned(bytes, 1);
    if (!x)
        return CB_ENOMEM;
    free(c->x);
    c->x = x;
    c->x_bytes = bytes;
    return CB_OK;
}

int64_t cb_cpu_matmul_reserve(struct device *d, int n_tok, int max_in)
{
    struct cpu *c = d->impl;
    const size_t token = cb_mm_token_bytes(c->kern->mm, max_in);
    const size_t least = token * (size_t)min_int(n_tok, PASS_MIN);
    size_t bytes = token * (size_t)min_int(n_tok, PASS_MAX);

    if (bytes > PASS_BYTES)
        bytes = least > PASS_BYTES ? least : PASS_BYTES;
    TRY(grow_x(c, bytes));
    if (c->provider)
        TRY(cb_par_reserve(d->par, cb_provider_scratch(max_in)));
    TRY(cb_par_reserve(d->par, MM_PANEL_BYTES));
    return (int64_t)c->x_bytes;
}

/* Room of a thread for one panel of w, or for two, a gate's and an up projection's, where they are
 * not too large for each of many threads to have them */
int cb_cpu_panels_reserve(struct device *d, const struct weight *w)
{
    struct cpu *c = d->impl;
    const size_t one = cb_mm_panel_bytes(c->kern->mm, mm_layout[w->type].panel, w->n_in);
    const size_t room = 2 * one > PAIR_BYTES ? one : 2 * one;

    TRY(cb_par_reserve(d->par, room));
    c->panel_room = max_size(max_size(room, MM_PANEL_BYTES), c->panel_room);
    return CB_OK;
}

/* 1: a thread has room for a panel of each */
static int fit_together(const struct device *d, const struct weight *w, const struct weight *up)
{
    const struct kern_mm *k = cb_cpu_kern(d)->mm;

    return cb_mm_panel_bytes(k, mm_layout[w->type].panel, w->n_in) +
               cb_mm_panel_bytes(k, mm_layout[up->type].panel, up->n_in) <=
           ((const struct cpu *)d->impl)->panel_room;
}

/* A tile x of `width` tokens times n_group groups of w's packed weights, from group g on ->
 * out[n_group][width][16] */
static void direct(const struct pass *p, const struct weight *w, int g, int n_group, const void *x,
                   int width, float *out)
{
    const int quant = !mm_is_float(w->type);
    const size_t step = cb_mm_group_bytes(w->type, w->n_in);
    const void *group = (const uint8_t *)w->packed + (size_t)g * step;

    if (p->batch && quant)
        (p->many ? p->many->batch : p->k->batch)[p->act16][w->type](group, step, n_group, x,
                                                                    w->n_in, width, out);
    else if (p->act16 && p->all_lines && w->type == DT_Q8_0)
        p->k->q8_all_lines(group, x, w->n_in, out);
    else if (p->act16 && quant)
        p->k->act16[w->type](group, x, w->n_in, out);
    else
        p->k->direct[w->type][width - 1](group, x, w->n_in, out);
}

/* The group that holds item i, or -1 if item i - 1 is in the same group */
static int group_of(const struct pass *p, int i)
{
    const int g = p->some ? p->some[i] / MM_ROWS : i;
    return p->some && i && p->some[i - 1] / MM_ROWS == g ? -1 : g;
}

/* Prefetches the first MM_AHEAD bytes of n_group groups from g on, which the kernels' own prefetch
 * misses */
static void ask_for_start(const struct weight *w, int g, int n_group)
{
    const size_t step = cb_mm_group_bytes(w->type, w->n_in);

    for (int k = g; k < g + n_group; k++)
        for (size_t i = 0; i < MM_AHEAD; i += 64)
            __builtin_prefetch((const char *)w->packed + (size_t)k * step + i, 0, 2);
}

static void direct_rows(const struct pass *p, const struct mm *mm, int i0, int i1, int t0, int t1,
                        int thread)
{
    const struct weight *w = mm->w;
    const int most = pass_groups_at_once(p, w), set = pass_set_of(p, mm);
    _Alignas(64) float out[MM_GROUP_MAX * BATCH_TILE * MM_ROWS], up[sizeof out / sizeof *out];

    if (!p->some) {
        ask_for_start(w, i0, min_int(most, i1 - i0));
        if (p->up)
            ask_for_start(p->up, i0, min_int(most, i1 - i0));
    }
    for (int t = t0; t < t1; t++) {
        const int width = pass_tile_width(p, t), size = width * MM_ROWS;
        const void *x = cb_pass_x(p, set, t, mm_form(p->k, w->type), thread);
        const void *up_x = p->up ? cb_pass_x(p, set, t, mm_form(p->k, p->up->type), thread) : NULL;

        for (int i = i0, n, g; i < i1; i += n) {
            n = min_int(most, i1 - i);
            g = group_of(p, i);
            if (g < 0)
                continue;
            direct(p, w, g, n, x, width, out);
            if (p->up) {
                direct(p, p->up, g, n, up_x, width, up);
                p->vec->glu(p->act, out, up, (size_t)(n * size));
            }
            for (int k = 0; k < n; k++)
                cb_pass_store(p, mm, t, (g + k) * MM_ROWS, MM_ROWS, out + k * size);
        }
    }
}

static void run_item(void *ctx, int i, int thread)
{
    const struct pass *p = ctx;
    const struct pass_item it = cb_pass_item(p, i);

    if (p->use_panel && !mm_is_float(it.mm->w->type))
        cb_pass_panel_rows(p, it.mm, it.g0, it.g1, it.t0, it.t1, thread);
    else
        direct_rows(p, it.mm, it.g0, it.g1, it.t0, it.t1, thread);
}

/* Tokens a tile; a batch is divided into even tiles */
static int tile_tokens(const struct pass *p)
{
    const int n = (p->n_tok + BATCH_TILE - 1) / BATCH_TILE;

    if (p->use_panel && p->many)
        return MM_MANY_TILE;
    return p->batch && !pass_has_float(p) ? (p->n_tok + n - 1) / n : p->k->tile;
}

/* 8-bit tokens: more of them than a tile takes, but too few to unpack panels for */
static int is_batch(const struct pass *p)
{
    if (p->act16)
        return p->n_tok > 1;
    return p->k->batch[0][DT_Q8_0] && p->form[MM_QUANT] && !pass_has_float(p) &&
           p->n_tok > p->k->direct_max && p->n_tok <= BATCH_TILE;
}

/* Tokens that float weights multiply as well come in
 * tiles of another width, for which there are panels of the tier's other kernels. So do tokens that
 * lie apart: a thread has room for a copy of a few. */
static void run_pass(struct pass *p, struct cpu *c)
{
    p->batch = is_batch(p);
    p->use_panel = !p->act16 && !p->batch && p->n_tok > p->k->direct_max && p->k->unpack[DT_Q8_0];
    if (p->batch ? p->n_tok >= MM_MANY_BATCH
                 : p->use_panel && !pass_has_float(p) && p->x_stride == (size_t)p->n_in)
        p->many = c->kern->many;
    else
        p->many = NULL;
    p->tile = tile_tokens(p);
    p->n_tile = (p->n_tok + p->tile - 1) / p->tile;
    cb_pass_divide(p, cb_par_threads(p->par), c->cut);
    cb_pass_prepare(p);
    cb_par_for(p->par, cb_pass_items(p), run_item, p);
}

/* Tokens a pass: passes of equal length, whole tiles. forms: bits */
static int pass_tokens(const struct cpu *c, const struct pass *p, int n_tok, unsigned forms)
{
    const int quant = forms == 1u << MM_QUANT;
    const int tile = quant && p->act16        ? BATCH_TILE
                     : quant && c->kern->many ? MM_MANY_TILE
                                              : p->k->tile;
    const size_t bytes =
        p->act16 || p->n_set > 1 ? cb_pass_token_bytes(p, forms) : cb_mm_token_bytes(p->k, p->n_in);
    const int room = min_int(PASS_MAX, (int)(c->x_bytes / bytes));
    const int most = room > tile ? room / tile * tile : room;
    const int n_pass = (n_tok + most - 1) / most;

    return min_int(((n_tok + n_pass - 1) / n_pass + tile - 1) / tile * tile, most);
}

/* Runs p in passes; forms: bits of the forms of activations that its products need */
static void passes(const struct device *d, struct pass *p, unsigned forms, const float *x,
                   int n_tok)
{
    struct cpu *c = d->impl;
    int most;

    p->own = c->own;
    p->all_lines = c->all_lines;
    p->act16 = p->mm->bits == 16 && forms >> MM_QUANT & 1;
    most = pass_tokens(c, p, n_tok, forms);
    for (p->tok0 = 0; p->tok0 < n_tok; p->tok0 += most) {
        p->n_tok = min_int(most, n_tok - p->tok0);
        p->x = x + (size_t)p->tok0 * p->x_stride;
        cb_pass_place(p, forms, c->x);
        p->number = c->n_pass += (uint64_t)p->n_set;
        run_pass(p, c);
    }
}

static struct pass pass_of(const struct device *d, const struct mm *mm, int n)
{
    const struct cpu_kern *k = cb_cpu_kern(d);

    return (struct pass){ .k = k->mm,
                          .vec = k->vec,
                          .par = d->par,
                          .mm = mm,
                          .n_mm = n,
                          .n_in = mm->w->n_in,
                          .n_set = 1,
                          .x_stride = (size_t)mm->w->n_in };
}

static unsigned form_bit(const struct pass *p, const struct weight *w)
{
    return 1u << mm_form(p->k, w->type);
}

/* The library that computes these products, or NULL. A batch always uses our kernels: its tokens
 * must get the same results as alone. */
static const struct provider *library(const struct device *d, const struct mm *mm, int n_tok)
{
    const struct cpu *c = d->impl;
    return n_tok >= PROVIDER_MIN_TOK && !mm->bits ? c->provider : NULL;
}

/* 1: n products run as one loop of the threads. Not on several NUMA nodes: there each part of a
 * loop is a fixed part of a matrix, as in load. */
static int one_loop(const struct device *d, int n)
{
    return n == 1 || cb_par_nodes(d->par) == 1;
}

void cb_cpu_matmul(struct device *d, const struct mm *mm, int n, const float *x, int n_tok)
{
    unsigned forms = 0;
    struct pass p;

    if (n <= 0 || n_tok <= 0)
        return;
    if (library(d, mm, n_tok)) {
        cb_provider_matmul(d, library(d, mm, n_tok), mm, n, x, n_tok);
        return;
    }
    if (!one_loop(d, n)) {
        for (int i = 0; i < n; i++)
            cb_cpu_matmul(d, &mm[i], 1, x, n_tok);
        return;
    }
    p = pass_of(d, mm, n);
    for (int i = 0; i < n; i++) {
        assert(mm[i].w->n_in == p.n_in && mm[i].w->packed);
        forms |= form_bit(&p, mm[i].w);
    }
    passes(d, &p, forms, x, n_tok);
}

/* Always with our kernels: the matrices are small. */
void cb_cpu_matmul_sets(struct device *d, const struct mm *mm, int n, const float *x, size_t x_step,
                        size_t x_stride, int n_tok)
{
    struct pass p;
    unsigned forms;

    if (n <= 0 || n_tok <= 0)
        return;
    p = pass_of(d, mm, n);
    p.n_set = n;
    p.x_step = x_step;
    p.x_stride = x_stride;
    forms = form_bit(&p, mm->w);
    if (n > 1 &&
        (!one_loop(d, n) || cb_pass_token_bytes(&p, forms) > ((struct cpu *)d->impl)->x_bytes)) {
        for (int i = 0; i < n; i++)
            cb_cpu_matmul_sets(d, &mm[i], 1, x + (size_t)i * x_step, x_step, x_stride, n_tok);
        return;
    }
    passes(d, &p, forms, x, n_tok);
}

void cb_cpu_matmul_rows(struct device *d, const struct mm *mm, const int32_t *rows, int n,
                        const float *x)
{
    struct pass p = pass_of(d, mm, 1);

    if (n <= 0)
        return;
    p.some = rows;
    p.n_some = n;
    passes(d, &p, form_bit(&p, mm->w), x, 1);
}

void cb_cpu_matmul_glu(struct device *d, const struct mm *mm, enum act_kind act, const float *x,
                       int n_tok)
{
    const int n_out = mm->w->n_out, plain = mm_is_float(mm->w->type);
    struct pass p;

    assert(mm[1].w->n_in == mm->w->n_in && mm[1].w->n_out == n_out);
    if (n_tok <= 0)
        return;
    if (library(d, mm, n_tok) || !one_loop(d, 2) || mm_is_float(mm[1].w->type) != plain ||
        (n_tok > cb_cpu_kern(d)->mm->direct_max && !plain && !fit_together(d, mm->w, mm[1].w))) {
        cb_cpu_matmul(d, mm, 2, x, n_tok);
        cb_cpu_glu(d, act, mm[0].y, mm[1].y, n_out, n_tok);
        return;
    }
    p = pass_of(d, mm, 1);
    p.up = mm[1].w;
    p.act = act;
    passes(d, &p, form_bit(&p, mm[0].w) | form_bit(&p, mm[1].w), x, n_tok);
}
