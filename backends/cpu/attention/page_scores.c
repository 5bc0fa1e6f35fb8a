/* SPDX-License-Identifier: MIT */
/* page_scores.c - bounds of the keys of pages, and what no key of a page can exceed, on all
 * threads. */
#include "cpu/kern.h"
#include "cpu/vector/kern_vec.h"
#include "device/sketch.h"

/* ---- bounds ---- */

struct binding {
    const struct kern_vec *k;
    enum kv_type t;
    const char *rows;
    int page, hd;
    char *bounds;
};

static void bind_page(void *ctx, int p, int thread)
{
    const struct binding *y = ctx;
    const size_t row = cb_kv_row_bytes(y->t, y->hd);
    const char *rows = y->rows + (size_t)p * (size_t)y->page * row;
    float x[MAX_HD], min[MAX_HD], max[MAX_HD];

    (void)thread;
    for (int j = 0; j < y->page; j++, rows += row) {
        y->k->decode(y->t, rows, y->hd, x);
        cb_sketch_widen(x, y->hd, j == 0, min, max);
    }
    cb_bounds_put(y->hd, min, max, y->bounds + (size_t)p * cb_bounds_bytes(y->hd));
}

void cb_cpu_bounds(struct device *d, enum kv_type t, const void *rows, int n_page, int page, int hd,
                   void *bounds)
{
    struct binding y = { cb_cpu_vec(d), t, rows, page, hd, bounds };
    cb_par_for(d->par, n_page, bind_page, &y);
}

/* ---- scores ---- */

enum { PIECE = 128 }; /* pages an item */

struct scoring {
    const struct kern_vec *k;
    const struct page_scores *s;
    int n_piece;
};

static float page_score(const struct page_scores *s, const struct kern_vec *k, const float *q,
                        const void *page)
{
    float best = 0, sum = 0;

    for (int h = 0; h < s->per; h++, q += s->hd) {
        const float x = k->bound(page, q, s->hd);
        best = h && best > x ? best : x;
        sum += x;
    }
    return s->mean ? sum / (float)s->per : best;
}

static void score_piece(void *ctx, int i, int thread)
{
    const struct scoring *y = ctx;
    const struct page_scores *s = y->s;
    const size_t bytes = cb_bounds_bytes(s->hd);
    const int row = i / y->n_piece, from = i % y->n_piece * PIECE, head = row * s->per;
    const int to = from + PIECE < s->n_page ? from + PIECE : s->n_page;
    const uint8_t *bounds = s->bounds + (size_t)(head / (s->n_head / s->n_kv)) * s->head_bytes;
    const float *q = s->q + (size_t)head * (size_t)s->hd;
    float *out = s->out + (size_t)row * (size_t)s->out_stride;

    (void)thread;
    for (int p = from; p < to; p++)
        out[p] = page_score(s, y->k, q, bounds + (size_t)p * bytes);
}

void cb_cpu_page_scores(struct device *d, const struct page_scores *s)
{
    struct scoring y = { cb_cpu_vec(d), s, (s->n_page + PIECE - 1) / PIECE };
    cb_par_for(d->par, s->n_head / s->per * y.n_piece, score_piece, &y);
}
