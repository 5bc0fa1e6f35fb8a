/* SPDX-License-Identifier: MIT */
/* gpu_sketch.c - searches of sketched keys, which the CPU does: sketches lie in the bank, which it
 * reads without waiting for a copy, and the slots that it finds are lists of the host. */
#include <stdlib.h>

#include "device/sketch.h"
#include "gpu.h"

/* Rows that the device has stored must be there. 0: something has failed. */
static int host_ready(struct gpu *g)
{
    cb_gpu_finish(g);
    return !g->status;
}

void cb_gpu_sketch(struct device *d, enum kv_type t, const void *rows, int n_block, int hd,
                   int bits, int n_out, void *sketch)
{
    struct gpu *g = cb_gpu_of(d);

    if (host_ready(g))
        g->host.ops->sketch(&g->host, t, rows, n_block, hd, bits, n_out, sketch);
}

void cb_gpu_bounds(struct device *d, enum kv_type t, const void *rows, int n_page, int page, int hd,
                   void *bounds)
{
    struct gpu *g = cb_gpu_of(d);

    if (host_ready(g))
        g->host.ops->bounds(&g->host, t, rows, n_page, page, hd, bounds);
}

/* The query in the host's memory; NULL: something has failed */
static float *query(struct gpu *g, const float *q, int n)
{
    return g->status ? NULL : cb_gpu_to_host(g, q, (size_t)n * sizeof *q);
}

void cb_gpu_sketch_topk(struct device *d, const struct sketch_topk *s)
{
    struct gpu *g = cb_gpu_of(d);
    struct sketch_topk host = *s;
    float *q = query(g, s->q, s->n_head * s->hd);

    host.q = q;
    for (int h = 0; h < s->n_kv; h++)
        s->n[h] = 0;
    if (q && !g->status)
        g->host.ops->sketch_topk(&g->host, &host);
    if (q != s->q)
        free(q);
}

void cb_gpu_page_scores(struct device *d, const struct page_scores *s)
{
    struct gpu *g = cb_gpu_of(d);
    struct page_scores host = *s;
    float *q = query(g, s->q, s->n_head * s->hd);

    host.q = q;
    if (q && !g->status)
        g->host.ops->page_scores(&g->host, &host);
    if (q != s->q)
        free(q);
}
