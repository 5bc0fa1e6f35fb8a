/* SPDX-License-Identifier: MIT */
/* panels.c - products of many tokens: a thread unpacks some rows of weights into panels, which stay
 * in L2 while the tiles of activations stream by. And how results are stored. */
#include <string.h>

#include "pass.h"

/* ---- store ---- */

/* y[n] = [y +] out [+ bias] */
static inline void store_row(float *restrict y, const float *restrict out,
                             const float *restrict bias, int add, int n)
{
    if (bias && add)
        for (int r = 0; r < n; r++)
            y[r] = out[r] + bias[r] + y[r];
    else if (bias)
        for (int r = 0; r < n; r++)
            y[r] = out[r] + bias[r];
    else if (add)
        for (int r = 0; r < n; r++)
            y[r] = out[r] + y[r];
    else
        memcpy(y, out, (size_t)n * sizeof *y);
}

/* Where token i of a tile has its results from row `row` on */
static float *place_of(const struct pass *p, const struct mm *mm, int tile, int i, int row)
{
    return mm->y + (size_t)(p->tok0 + tile * p->tile + i) * (size_t)mm->y_stride + row;
}

/* Prefetches what cb_pass_store() will write, so that its stores do not wait while a panel's
 * products could hide that. */
static void ask_for_place(const struct pass *p, const struct mm *mm, int tile, int row, int rows)
{
    const int n = min_int(rows, mm->w->n_out - row);

    for (int i = 0; i < pass_tile_width(p, tile); i++)
        for (int r = 0; r < n; r += MM_ROWS)
            __builtin_prefetch(place_of(p, mm, tile, i, row + r), 1);
}

void cb_pass_store(const struct pass *p, const struct mm *mm, int tile, int row, int rows,
                   const float *out)
{
    const int n = min_int(rows, mm->w->n_out - row);

    for (int i = 0; i < pass_tile_width(p, tile); i++) {
        float *y = place_of(p, mm, tile, i, row);
        for (int r = 0; r < n; r += MM_ROWS) {
            const float *bias = mm->bias ? mm->bias + row + r : NULL, *o = out + i * rows + r;
            if (r + MM_ROWS <= n) /* constant count, for the vectoriser */
                store_row(y + r, o, bias, mm->add, MM_ROWS);
            else
                store_row(y + r, o, bias, mm->add, n - r);
        }
    }
}

/* ---- panels ---- */

size_t cb_mm_panel_bytes(const struct kern_mm *k, enum mm_panel kind, int n_in)
{
    return (size_t)n_in / 32 * (size_t)k->panel_rows * (kind == MM_MIN16 ? 48 : 40);
}

static size_t weight_panel_bytes(const struct kern_mm *k, const struct weight *w)
{
    return cb_mm_panel_bytes(k, mm_layout[w->type].panel, w->n_in);
}

int cb_pass_panel_groups(const struct pass *p, const struct weight *w)
{
    const int step = p->k->panel_rows / MM_ROWS;
    size_t most = weight_panel_bytes(p->k, w);
    int n;

    if (p->up && weight_panel_bytes(p->k, p->up) > most)
        most = weight_panel_bytes(p->k, p->up);
    n = (int)(MM_PANEL_BYTES / most) / (p->up ? 2 : 1);
    return n > 1 ? n * step : step;
}

/* Groups [g0, g1) of packed weights -> panels */
static void unpack(const struct pass *p, const struct weight *w, int g0, int g1, uint8_t *panels)
{
    const int step = p->k->panel_rows / MM_ROWS;
    const size_t bytes = cb_mm_group_bytes(w->type, w->n_in);

    for (int g = g0; g < g1; g += step, panels += weight_panel_bytes(p->k, w)) {
        const void *group[MM_PANEL_MAX / MM_ROWS];
        for (int j = 0; j < step; j++) /* past the end: the last group again, not stored */
            group[j] = (const uint8_t *)w->packed + (size_t)min_int(g + j, g1 - 1) * bytes;
        (p->many ? p->many->unpack : p->k->unpack)[w->type](group, w->n_in, panels);
    }
}

/* A panel of w x n_tok tokens from tile t on -> out[n_tok][panel_rows] */
static void multiply(const struct pass *p, const struct weight *w, const uint8_t *panel,
                     const void *x, int n_tok, float *out)
{
    const enum mm_panel kind = mm_layout[w->type].panel;

    if (p->many)
        p->many->multiply[kind](panel, x, w->n_in, n_tok, out);
    else
        p->k->panel[kind][n_tok - 1](panel, x, w->n_in, out);
}

void cb_pass_panel_rows(const struct pass *p, const struct mm *mm, int g0, int g1, int t0, int t1,
                        int thread)
{
    const struct weight *w = mm->w;
    const int rows = p->k->panel_rows, step = rows / MM_ROWS;
    const int run = p->many ? MM_MANY_RUN / MM_MANY_TILE : 1; /* tiles */
    const size_t one = weight_panel_bytes(p->k, w),
                 up_one = p->up ? weight_panel_bytes(p->k, p->up) : 0;
    uint8_t *const panels = cb_par_scratch(p->par, thread);
    uint8_t *const ups = panels + (size_t)((g1 - g0 + step - 1) / step) * one;
    _Alignas(64) float out[MM_MANY_RUN * MM_PANEL_MAX], up[MM_MANY_RUN * MM_PANEL_MAX];

    unpack(p, w, g0, g1, panels);
    if (p->up)
        unpack(p, p->up, g0, g1, ups);
    for (int t = t0, n; t < t1; t += n) {
        const void *x = cb_pass_x(p, pass_set_of(p, mm), t, MM_QUANT, thread);
        int n_tok = 0;

        for (n = 0; n < run && t + n < t1; n++)
            n_tok += pass_tile_width(p, t + n);
        for (int g = g0, i = 0; g < g1; g += step, i++) {
            if (!p->many)
                ask_for_place(p, mm, t, g * MM_ROWS, rows);
            multiply(p, w, panels + (size_t)i * one, x, n_tok, out);
            if (p->up) {
                multiply(p, p->up, ups + (size_t)i * up_one, x, n_tok, up);
                p->vec->glu(p->act, out, up, (size_t)(n_tok * rows));
            }
            for (int j = 0; j < n; j++)
                cb_pass_store(p, mm, t + j, g * MM_ROWS, rows, out + j * p->tile * rows);
        }
    }
}
