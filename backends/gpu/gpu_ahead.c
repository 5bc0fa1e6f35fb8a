/* SPDX-License-Identifier: MIT */
/* gpu_ahead.c - rows of the bank that the next layer will read whole, copied while this one
 * computes: into pages of the mirror that neither layer uses, some after each product, in the
 * second queue. */
#include "gpu_ahead.h"

#include <stdlib.h>

#include "base/err.h"

enum { PRODUCTS = 6 }; /* of a layer, after which rows are sent */

/* Rows of one area that are to come */
struct stretch {
    struct gpu_area *area;
    int page, last, end; /* the page that comes next, the last one; the last row's end */
};

struct gpu_ahead {
    struct stretch *s; /* [n] */
    int n, at;         /* at: that from which pages come next */
    int pages, left;   /* that the layer has, -1: not known; that may still come */
    int share;         /* that come after a product */
};

void cb_gpu_rows_ahead_close(struct gpu *g)
{
    if (g->rows_ahead)
        free(g->rows_ahead->s);
    free(g->rows_ahead);
    g->rows_ahead = NULL;
}

/* An area was given up. */
void cb_gpu_rows_ahead_forget(struct gpu *g, const struct gpu_area *a)
{
    struct gpu_ahead *x = g->rows_ahead;

    for (int i = 0; x && i < x->n; i++)
        if (x->s[i].area == a)
            x->s[i].page = x->s[i].last + 1;
}

static void add(struct gpu_ahead *x, struct gpu_area *a, const void *from, int n)
{
    const int at = a ? (int)((size_t)((const uint8_t *)from - a->rows) / a->row_bytes) : 0;

    if (!a || n < 1 || (x->n && x->s[x->n - 1].area == a))
        return;
    x->s[x->n] = (struct stretch){ a, at >> a->shift, (at + n - 1) >> a->shift, at + n };
    x->pages += x->s[x->n].last - x->s[x->n].page + 1;
    x->n++;
}

void cb_gpu_rows_ahead(struct gpu *g, const struct kv_run *run, int n)
{
    const int had = g->rows_ahead ? g->rows_ahead->pages : -1;
    struct gpu_ahead *x;

    cb_gpu_rows_ahead_close(g);
    x = g->rows_ahead = cb_calloc(1, sizeof *x);
    if (!x || !(x->s = cb_calloc(2 * (size_t)n + 1, sizeof *x->s))) {
        cb_gpu_rows_ahead_close(g);
        return;
    }
    cb_gpu_mirror_next_layer(g);
    for (int i = 0; i < n; i++) {
        add(x, cb_gpu_area(g, run[i].k), run[i].k, run[i].n);
        add(x, cb_gpu_area(g, run[i].v), run[i].v, run[i].n);
    }
    /* the layer that begins now may need one page more for each area */
    x->left = had < 0 ? 0 : cb_gpu_mirror_capacity(g) - had - x->n;
    x->pages = n ? x->pages : -1;
    x->share = (x->pages + PRODUCTS - 1) / PRODUCTS;
    cb_gpu_ahead_after(g); /* what is queued reads what the pages have now */
}

void cb_gpu_rows_ahead_next(struct gpu *g)
{
    struct gpu_ahead *x = g->rows_ahead;

    for (int i = 0; x && i < x->share && x->at < x->n && x->left > 0; i++) {
        struct stretch *s = &x->s[x->at];
        if (s->page <= s->last) {
            if (!cb_gpu_mirror_bring(g, s->area, s->page++, s->end))
                x->left = 0;
            x->left--;
        }
        x->at += s->page > s->last;
    }
}
