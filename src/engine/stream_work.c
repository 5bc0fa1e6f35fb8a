/* SPDX-License-Identifier: MIT */
/* stream_work.c - work space of models with several residual streams. */
#include "stream_work.h"

#include <stdlib.h>

#include "base/err.h"

const struct ngrams *cb_stream_ngrams(const struct cb_model *m)
{
    for (int l = 0; l < m->hp.n_layer; l++)
        if (m->layer[l].ngrams)
            return m->layer[l].ngrams;
    return NULL;
}

/* n floats in the device's memory, or, with d NULL, in the host's */
static int grow(struct device *d, float **p, size_t n, uint64_t *bytes)
{
    *p = d ? cb_device_alloc(d, n, sizeof **p) : cb_alloc_aligned(n, sizeof **p);
    *bytes += (uint64_t)n * sizeof **p;
    return *p ? CB_OK : CB_ENOMEM;
}

static int open_ngrams(struct stream_work *w, const struct cb_model *m, size_t c, size_t wide,
                       uint64_t *bytes)
{
    const struct ngrams *x = cb_stream_ngrams(m);
    size_t n;

    if (!x)
        return CB_OK;
    n = c * (size_t)x->n_head;
    TRY(grow(m->dev, &w->embedding, n * (size_t)x->dim, bytes));
    TRY(grow(NULL, &w->host[0], c * wide, bytes));
    TRY(grow(NULL, &w->host[1], c * wide, bytes));
    TRY(grow(NULL, &w->host[2], c * (size_t)m->hp.n_embd, bytes));
    *bytes += (uint64_t)n * sizeof *w->row;
    w->row = cb_calloc(n, sizeof *w->row);
    return w->row ? CB_OK : CB_ENOMEM;
}

static int open_altup(struct stream_work *w, const struct cb_model *m, size_t c, size_t wide,
                      uint64_t *bytes)
{
    const size_t ne = (size_t)m->hp.n_embd;

    TRY(grow(m->dev, &w->normed, c * wide, bytes));
    TRY(grow(m->dev, &w->gate, c * ne, bytes));
    TRY(grow(m->dev, &w->plane, c * ne, bytes));
    TRY(grow(m->dev, &w->low, c * (size_t)m->hp.stream_rank, bytes));
    TRY(grow(NULL, &w->weight, c * (size_t)m->hp.n_stream, bytes));
    if (!m->dev->ops->memory)
        return CB_OK;
    TRY(grow(NULL, &w->host[1], c * wide, bytes));
    return grow(NULL, &w->host[2], c * ne, bytes);
}

int cb_stream_work_open(struct stream_work *w, const struct cb_model *m, int chunk, uint64_t *bytes)
{
    const size_t c = (size_t)chunk, n = (size_t)m->hp.n_stream, wide = n * (size_t)m->hp.n_embd;

    if (m->hp.n_stream < 2)
        return CB_OK;
    if (m->hp.compress.n_group) { /* struct stream_blend */
        TRY(grow(NULL, &w->weight, c * (2 + n) * n, bytes));
        if (m->dev->ops->memory)
            TRY(grow(NULL, &w->host[2], c * (size_t)m->hp.n_embd, bytes));
        return grow(m->dev, &w->plane, c * (size_t)m->hp.n_embd, bytes);
    }
    if (m->hp.altup)
        return open_altup(w, m, c, wide, bytes);
    TRY(grow(m->dev, &w->normed, c * wide, bytes));
    TRY(grow(m->dev, &w->gate, c * wide, bytes));
    TRY(grow(m->dev, &w->plane, c * wide, bytes));
    TRY(grow(m->dev, &w->low, c * (size_t)m->hp.stream_rank, bytes));
    TRY(grow(NULL, &w->weight, c * n, bytes));
    return open_ngrams(w, m, c, wide, bytes);
}

void cb_stream_work_close(struct stream_work *w, struct device *d)
{
    float *const on[] = { w->normed, w->gate, w->plane, w->low, w->embedding };

    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        cb_device_free(d, on[i]);
    for (int i = 0; i < 3; i++)
        free(w->host[i]);
    free(w->weight);
    free(w->row);
}
