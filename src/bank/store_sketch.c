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

void cb_store_may_sketch(struct store *s, int bits, int n_out)
{
    s->sketch_bits = bits;
    s->sketch_out = n_out < SKETCH_BLOCK / 2 ? n_out : 0;
    s->head_sketch = cb_pages_head(cb_store_sketch_bytes(s, s->cap));
}

uint64_t cb_store_sketch_bytes(const struct store *s, int n)
{
    if (!s->sketch_bits)
        return 0;
    return (uint64_t)(n / SKETCH_BLOCK) * cb_sketch_bytes(s->sketch_bits, s->hd);
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
        TRY(s->mirror->ops->memory->watch(s->mirror, cb_store_sketch_at(s, h, 0),
                                          cb_sketch_bytes(s->sketch_bits, s->hd),
                                          (size_t)(s->cap / SKETCH_BLOCK)));
    return CB_OK;
}

void cb_store_sketch_close(struct store *s)
{
    for (int h = 0; s->mirror && s->sketch && h < s->n_kv; h++)
        s->mirror->ops->memory->unwatch(s->mirror, cb_store_sketch_at(s, h, 0));
    cb_pages_release(s->sketch, s->head_sketch * (size_t)s->n_kv);
}

static int n_out(const struct store *s)
{
    return s->sketched ? 0 : s->sketch_out;
}

/* A block with quantised keys, by way of f32 rows */
static int sketch_quantised(struct store *s, struct device *d, int kv)
{
    float *x = cb_alloc_aligned((size_t)SKETCH_BLOCK * (size_t)s->hd, sizeof *x), *y = x;

    if (!x)
        return CB_ENOMEM;
    for (int j = s->sketched; j < s->sketched + SKETCH_BLOCK; j++, y += s->hd)
        if (cb_kivi_has(s, kv, 0, j))
            cb_kivi_row(&s->kivi->head[kv], 0, j, s->hd, y);
        else
            d->ops->kv_decode(d, s->type_k, cb_store_key(s, kv, j), NULL, 1, s->hd, y);
    d->ops->sketch(d, KV_F32, x, 1, s->hd, s->sketch_bits, n_out(s),
                   cb_store_sketch_at(s, kv, s->sketched));
    free(x);
    return CB_OK;
}

int cb_store_sketch(struct store *s, struct device *d)
{
    int n_block = s->sketch_bits ? (s->n[0] - s->sketched) / SKETCH_BLOCK : 0;

    if (n_block <= 0)
        return CB_OK;
    TRY(need_memory(s));
    while (n_block > 0) {
        const int quantised = cb_kivi_has(s, 0, 0, s->sketched), m = quantised ? 1 : n_block;
        for (int h = 0; h < s->n_kv; h++) {
            if (quantised)
                TRY(sketch_quantised(s, d, h));
            else
                d->ops->sketch(d, s->type_k, cb_store_key(s, h, s->sketched), m, s->hd,
                               s->sketch_bits, n_out(s), cb_store_sketch_at(s, h, s->sketched));
        }
        s->sketched += m * SKETCH_BLOCK;
        n_block -= m;
    }
    return CB_OK;
}

void cb_store_sketch_cut(struct store *s, int n)
{
    const int left = n / SKETCH_BLOCK * SKETCH_BLOCK;

    if (s->sketched <= left)
        return;
    for (int h = 0; h < s->n_kv; h++)
        cb_pages_give_back(cb_store_sketch_at(s, h, left), cb_store_sketch_at(s, h, s->sketched));
    s->sketched = left;
}

int cb_store_sketch_fit(struct store *s)
{
    s->sketched = s->sketch_bits ? s->n[0] / SKETCH_BLOCK * SKETCH_BLOCK : 0;
    return s->sketched ? need_memory(s) : CB_OK;
}
