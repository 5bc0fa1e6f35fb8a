/* SPDX-License-Identifier: MIT */
/* store_planes.c - when keys go into planes, and when they leave them. */
#include "store_planes.h"

#include <string.h>

#include "base/ints.h"
#include "device/planes.h"
#include "pages.h"
#include "store_sketch.h"

int cb_planes_open(struct store *s, struct kivi_form v)
{
    const struct kivi_form k = {
        .bits = KIVI_PLANES, .residual = SKETCH_BLOCK, .group = 1, .first = s->sketch_out
    };

    return cb_kivi_open(s, k, v);
}

static uint8_t *row_at(const struct store *s, int kv, int row)
{
    return s->kivi->k + s->kivi->head_k * (size_t)kv +
           cb_planes_row_bytes(s->sketch_bits, s->hd) * (size_t)row;
}

struct filling {
    const struct store *s;
    struct device *d;
    int from, n_block; /* the first block, and how many of a KV head */
};

/* A block of a KV head */
static void fill_block(void *ctx, int item, int thread)
{
    const struct filling *f = ctx;
    const struct store *s = f->s;
    const int kv = item / f->n_block, b = f->from + item % f->n_block, lo = s->kivi->head[kv].lo_k;
    const uint8_t *block = cb_store_sketch_at(s, kv, b * SKETCH_BLOCK);
    float step[SKETCH_MAX_HD], min[SKETCH_MAX_HD], x[SKETCH_MAX_HD];

    (void)thread;
    cb_sketch_steps(s->hd, block, step, min);
    for (int j = max_int(lo, b * SKETCH_BLOCK); j < (b + 1) * SKETCH_BLOCK; j++) {
        f->d->ops->kv_decode(f->d, s->type_k, cb_store_key(s, kv, j), NULL, 1, s->hd, x);
        cb_planes_put(s->sketch_bits, s->hd, x, j % SKETCH_BLOCK, step, min, block,
                      row_at(s, kv, j - lo));
    }
}

void cb_planes_advance(struct store *s, struct device *d)
{
    struct kv_kivi *q = cb_kivi_planes(s) ? s->kivi->head : NULL;
    const int had = q ? q->n_k : 0, end = q ? s->sketched : 0;
    struct filling f = { s, d, had / SKETCH_BLOCK, (end - had) / SKETCH_BLOCK };

    if (end <= had)
        return;
    cb_par_for(d->par, s->n_kv * f.n_block, fill_block, &f);
    for (int h = 0; h < s->n_kv; h++) {
        cb_kivi_give_back(s, h, 0, q[h].lo_k, max_int(had, q[h].lo_k), end);
        q[h].n_k = end;
        s->kivi->rows_k[h] = end - q[h].lo_k;
    }
}

void cb_planes_cut(struct store *s, int kv, int n)
{
    struct kv_kivi *q = cb_kivi_planes(s) ? &s->kivi->head[kv] : NULL;
    const int left = n - n % SKETCH_BLOCK, lo = q ? q->lo_k : 0, n_row = max_int(0, left - lo);

    if (!q || n >= q->n_k)
        return;
    for (int j = max_int(left, lo); j < n; j++) {
        const uint8_t *block, *rest;
        const int token = cb_kivi_planes_at(q, j - lo, s->hd, &block, &rest);
        cb_planes_get(q->plane_bits, s->hd, block, token, rest,
                      (uint16_t *)(void *)cb_store_key(s, kv, j));
    }
    cb_pages_give_back(row_at(s, kv, n_row), row_at(s, kv, s->kivi->rows_k[kv]));
    s->kivi->rows_k[kv] = n_row;
    q->n_k = n_row ? left : 0;
}
