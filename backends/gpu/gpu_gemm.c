/* SPDX-License-Identifier: MIT */
/* gpu_gemm.c - products of a prompt's tokens, where the device multiplies small matrices of halves.
 * Rows of weights are unpacked to halves in a slab, and then multiplied by all tokens: those of up
 * to three weights, or some of one. */
#include "gpu_gemm.h"

#include "gpu_mirror.h"
#include "gpu_share.h"

enum { UNPACK_ITEMS = 128, LEAST_ROWS = 8, MOST_SLAB = 256 << 20 };
enum { TILE = 128, TILE_ITEMS = 256, SMALL = 64, SMALL_ITEMS = 128 };
enum { BUSY = 80 }; /* groups that keep most devices busy */

static size_t parts(size_t n, size_t part)
{
    return (n + part - 1) / part;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t row_bytes(const struct weight *w) /* of halves */
{
    return parts((size_t)w->n_in, 32) * 64;
}

/* Rows that lie as the kernel wants them */
static int is_plain(const struct weight *w)
{
    return w->type == DT_F16 && w->n_in % 32 == 0;
}

static size_t tiles(size_t n, int n_tok)
{
    return parts(n, TILE) * parts((size_t)n_tok, TILE);
}

/* Half of the operands' share, or less where more would push weights off the device */
static size_t slab_room(const struct gpu *g)
{
    const size_t room = cb_gpu_room(g) + (g->locked ? 0 : (size_t)cb_gpu_mirror_bytes(g));

    return least(least(MOST_SLAB, (size_t)cb_gpu_operand_share(g) / 2),
                 least(room + g->slab.bytes, g->most_block));
}

/* How many rows of a weight are unpacked at a time: in as few slabs as there is room for, of whole
 * tiles if there is */
static size_t slab_rows(const struct gpu *g, const struct weight *w)
{
    const size_t n_out = (size_t)w->n_out, fit = slab_room(g) / row_bytes(w);
    const size_t whole = fit / TILE * TILE;

    if (fit >= n_out)
        return n_out;
    if (!whole)
        return least(n_out, fit > LEAST_ROWS ? fit : LEAST_ROWS);
    return least(whole, parts(parts(n_out, parts(n_out, whole)), TILE) * TILE);
}

/* How many of n products share a launch: each of them fills the device, or none does. Their last
 * groups then leave a part of the device idle once, not once for each product. */
int cb_gpu_gemm_at_once(const struct gpu *g, const struct mm *mm, int n, int n_tok)
{
    const struct weight *w = mm->w;
    const int few = tiles((size_t)w->n_out, n_tok) < BUSY;
    size_t rows = 0;
    int i = 0;

    for (; i < n && i < GPU_AT_ONCE; i++) {
        const struct weight *v = mm[i].w;
        const size_t n_out = (size_t)v->n_out;
        rows += parts(n_out, TILE) * TILE;
        if (mm[i].bits || v->type == DT_F32 || is_plain(v) || v->n_in != w->n_in ||
            !((const struct gpu_weight *)v->packed)->on || mm[i].add != mm->add ||
            (tiles(n_out, n_tok) < BUSY) != few || rows * row_bytes(w) > slab_room(g))
            break;
    }
    return i ? i : 1;
}

static void unpack(struct gpu *g, const struct weight *w, const uint8_t *from, size_t n, void *to)
{
    const struct gpu_weight *cw = w->packed;
    const size_t groups[3] = { n, 1, 1 };
    const struct gpu_arg arg[] = { GPU_P(from), GPU_L(cb_row_bytes(w->type, w->n_in)),
                                   GPU_I(w->n_in), GPU_P(to) };

    cb_gpu_run(g, cw->program, "unpack_rows", groups, UNPACK_ITEMS, arg, 4, NULL);
}

/* rows[n] rows of each product, from row o on, which lie in `half` as halves, each one's first row
 * at a multiple of TILE */
static void multiply(struct gpu *g, const struct gpu_product *p, int n, const void *half,
                     const size_t *rows, size_t o, const struct gpu_tokens *x)
{
    struct gpu_program *program = cb_gpu_program(g, GPU_GEMM, (struct gpu_options){ 0 });
    const struct mm *mm = p->mm;
    struct gpu_arg of[4][GPU_AT_ONCE] = { 0 }; /* rows, biases, results, their strides */
    size_t all = 0;

    for (int i = 0; i < GPU_AT_ONCE; i++) {
        of[0][i] = of[3][i] = (struct gpu_arg)GPU_I(0);
        if (i >= n)
            continue;
        of[0][i].as.i = (int)rows[i];
        of[1][i].as.p = p[i].bias ? p[i].bias + o : NULL;
        of[2][i].as.p = p[i].y + o;
        of[3][i].as.i = p[i].mm->y_stride;
        all += parts(rows[i], TILE) * TILE;
    }
    const int small = x->n <= SMALL || tiles(all, x->n) < BUSY;
    const size_t side = small ? SMALL : TILE;
    const size_t groups[3] = { parts((size_t)x->n, side), parts(n > 1 ? all : *rows, side), 1 };
    const struct gpu_arg arg[] = { GPU_P(half),
                                   GPU_P(x->half),
                                   GPU_P(x->scale),
                                   GPU_I(x->n),
                                   GPU_I((int)parts((size_t)mm->w->n_in, 32)),
                                   of[0][0],
                                   of[0][1],
                                   of[0][2],
                                   of[1][0],
                                   of[1][1],
                                   of[1][2],
                                   of[2][0],
                                   of[2][1],
                                   of[2][2],
                                   of[3][0],
                                   of[3][1],
                                   of[3][2],
                                   GPU_I(mm->add) };
    cb_gpu_run(g, program, small ? "gemm_64" : "gemm_128", groups, small ? SMALL_ITEMS : TILE_ITEMS,
               arg, 18, NULL);
}

/* One product, some rows of the weight at a time */
static void multiply_one(struct gpu *g, const struct gpu_product *p, const struct gpu_tokens *x)
{
    const struct weight *w = p->mm->w;
    const size_t n_out = (size_t)w->n_out, step = slab_rows(g, w);
    void *slab = cb_gpu_slab(g, step * row_bytes(w));

    for (size_t o = 0; o < n_out && !g->status; o += step) {
        const size_t n = least(step, n_out - o);
        unpack(g, w, (const uint8_t *)p->weight + o * cb_row_bytes(w->type, w->n_in), n, slab);
        multiply(g, p, 1, slab, &n, o, x);
    }
}

void cb_gpu_gemm(struct gpu *g, const struct gpu_product *p, int n, const struct gpu_tokens *x)
{
    const size_t bytes = row_bytes(p->mm->w);
    size_t rows[GPU_AT_ONCE], at[GPU_AT_ONCE], all = 0;
    uint8_t *slab;

    for (int i = 0; i < n; i++) {
        rows[i] = (size_t)p[i].mm->w->n_out;
        at[i] = all;
        all += parts(rows[i], TILE) * TILE;
    }
    if (is_plain(p->mm->w)) {
        multiply(g, p, 1, p->weight, rows, 0, x);
        return;
    }
    if (n == 1 || all * bytes > slab_room(g)) { /* results may have taken the room */
        for (int i = 0; i < n; i++)
            multiply_one(g, &p[i], x);
        return;
    }
    slab = cb_gpu_slab(g, all * bytes);
    for (int i = 0; i < n && slab; i++)
        unpack(g, p[i].mm->w, p[i].weight, rows[i], slab + at[i] * bytes);
    multiply(g, p, n, slab, rows, 0, x);
}
