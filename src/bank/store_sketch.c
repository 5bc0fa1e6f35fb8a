/* SPDX-License-Identifier: MIT */
/* store_sketch.c - makes and measures the sketches of a store's keys. */
#include "store_sketch.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/kivi.h"
#include "device/sketch.h"
#include "pages.h"
#include "store_kivi.h"

void cb_store_may_sketch(struct store *s, int bits, int block, int n_out)
{
    s->sketch_bits = bits;
    s->sketch_block = block;
    s->sketch_out = bits && n_out < SKETCH_BLOCK / 2 ? n_out : 0;
    s->head_sketch = cb_pages_head(cb_store_sketch_bytes(s, s->cap));
}

static size_t block_bytes(const struct store *s)
{
    return s->sketch_bits ? cb_sketch_bytes(s->sketch_bits, s->hd) : cb_bounds_bytes(s->hd);
}

uint64_t cb_store_sketch_bytes(const struct store *s, int n)
{
    return s->sketch_block ? (uint64_t)(n / s->sketch_block) * block_bytes(s) : 0;
}

uint8_t *cb_store_sketch_at(const struct store *s, int kv, int slot)
{
    return s->sketch + s->head_sketch * (size_t)kv + cb_store_sketch_bytes(s, slot);
}

/* A block is a row of the mirror. */
static int need_memory(struct store *s)
{
    if (s->sketch)
        return CB_OK;
    TRY(cb_pages_reserve(s->head_sketch * (size_t)s->n_kv, &s->sketch));
    for (int h = 0; s->mirror && h < s->n_kv; h++)
        TRY(s->mirror->ops->memory->watch(s->mirror, cb_store_sketch_at(s, h, 0), block_bytes(s),
                                          (size_t)(s->cap / s->sketch_block)));
    return CB_OK;
}

void cb_store_sketch_close(struct store *s)
{
    for (int h = 0; s->mirror && s->sketch && h < s->n_kv; h++)
        s->mirror->ops->memory->unwatch(s->mirror, cb_store_sketch_at(s, h, 0));
    cb_pages_release(s->sketch, s->head_sketch * (size_t)s->n_kv);
}

/* n_block blocks of rows -> the sketches of the slots after those that are sketched */
static void draw(struct store *s, struct device *d, int kv, enum kv_type t, const void *rows,
                 int n_block)
{
    uint8_t *to = cb_store_sketch_at(s, kv, s->sketched);

    if (s->sketch_bits)
        d->ops->sketch(d, t, rows, n_block, s->hd, s->sketch_bits, s->sketched ? 0 : s->sketch_out,
                       to);
    else
        d->ops->bounds(d, t, rows, n_block, s->sketch_block, s->hd, to);
}

/* A block with quantised keys, by way of f32 rows */
static int draw_quantised(struct store *s, struct device *d, int kv)
{
    const int n = s->sketch_block;
    float *x = cb_alloc_aligned((size_t)n * (size_t)s->hd, sizeof *x), *y = x;

    if (!x)
        return CB_ENOMEM;
    for (int j = s->sketched; j < s->sketched + n; j++, y += s->hd)
        if (cb_kivi_has(s, kv, 0, j))
            cb_kivi_read(s, kv, 0, j, y);
        else
            d->ops->kv_decode(d, s->type_k, cb_store_key(s, kv, j), NULL, 1, s->hd, y);
    draw(s, d, kv, KV_F32, x, 1);
    free(x);
    return CB_OK;
}

int cb_store_sketch(struct store *s, struct device *d)
{
    int n_block = s->sketch_block ? (s->n[0] - s->sketched) / s->sketch_block : 0;

    if (n_block <= 0)
        return CB_OK;
    TRY(need_memory(s));
    while (n_block > 0) {
        const int quantised = cb_kivi_has(s, 0, 0, s->sketched), m = quantised ? 1 : n_block;
        for (int h = 0; h < s->n_kv; h++) {
            if (quantised)
                TRY(draw_quantised(s, d, h));
            else
                draw(s, d, h, s->type_k, cb_store_key(s, h, s->sketched), m);
        }
        s->sketched += m * s->sketch_block;
        n_block -= m;
    }
    return CB_OK;
}

void cb_store_sketch_cut(struct store *s, int n)
{
    const int left = s->sketch_block ? n / s->sketch_block * s->sketch_block : 0;

    if (s->sketched <= left)
        return;
    for (int h = 0; h < s->n_kv; h++)
        cb_pages_give_back(cb_store_sketch_at(s, h, left), cb_store_sketch_at(s, h, s->sketched));
    s->sketched = left;
}

int cb_store_sketch_fit(struct store *s)
{
    s->sketched = s->sketch_block ? s->n[0] / s->sketch_block * s->sketch_block : 0;
    return s->sketched ? need_memory(s) : CB_OK;
}
