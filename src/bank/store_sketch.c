/* SPDX-License-Identifier: MIT */
/* store_sketch.c - makes and measures the sketches of a store's keys. */
#include "store_sketch.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "device/kivi.h"
#include "device/sketch.h"
#include "gguf/half.h"
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
    if (s->sketch_columns)
        return (size_t)s->sketch_columns * sizeof(uint16_t);
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
    for (int h = 0; cb_kivi_planes(s) && h < s->n_kv; h++)
        s->kivi->head[h].plane = cb_store_sketch_at(s, h, 0);
    return CB_OK;
}

void cb_store_sketch_close(struct store *s)
{
    for (int h = 0; s->mirror && s->sketch && h < s->n_kv; h++)
        s->mirror->ops->memory->unwatch(s->mirror, cb_store_sketch_at(s, h, 0));
    cb_pages_release(s->sketch, s->head_sketch * (size_t)s->n_kv);
    free(s->skew);
}

/* ---- partial keys ---- */

enum { LANES = 8, AT_ONCE = 32 }; /* columns that are summed together; rows of an item */

static int padded(const struct store *s)
{
    return (s->sketch_columns + LANES - 1) / LANES * LANES;
}

int cb_store_may_skew(struct store *s, int columns)
{
    s->sketch_columns = columns;
    s->sketch_block = 1;
    s->head_sketch = cb_pages_head(cb_store_sketch_bytes(s, s->cap));
    s->skew = cb_calloc((size_t)s->n_kv, cb_store_skew_bytes(s));
    return s->skew ? CB_OK : CB_ENOMEM;
}

size_t cb_store_skew_bytes(const struct store *s)
{
    return s->sketch_columns ? (size_t)s->hd * (size_t)padded(s) * sizeof *s->skew : 0;
}

float *cb_store_skew(const struct store *s, int kv)
{
    return s->skew + (size_t)kv * (size_t)s->hd * (size_t)padded(s);
}

void cb_store_set_skew(struct store *s, int kv, int column, const double *x)
{
    float *to = cb_store_skew(s, kv) + column;

    for (int i = 0; i < s->hd; i++)
        to[(size_t)i * (size_t)padded(s)] = (float)x[i];
}

void cb_store_skewed(const struct store *s, int kv, const float *x, float *y)
{
    const float *a = cb_store_skew(s, kv);
    const int row = padded(s);

    for (int j = 0; j < row; j += LANES, a += LANES) {
        float sum[LANES] = { 0 };
        for (int i = 0; i < s->hd; i++)
            for (int c = 0; c < LANES; c++)
                sum[c] += x[i] * a[i * row + c];
        memcpy(y + j, sum, (size_t)min_int(LANES, s->sketch_columns - j) * sizeof *y);
    }
}

struct drawing {
    const struct store *s;
    struct device *d;
    int kv, n;
    enum kv_type t;
    const uint8_t *rows;
    uint16_t *to;
};

static void draw_partial(void *ctx, int item, int thread)
{
    const struct drawing *w = ctx;
    const int hd = w->s->hd, n_col = w->s->sketch_columns;
    const size_t row = cb_kv_row_bytes(w->t, hd);
    float x[KV_MAX_HD], y[KV_MAX_HD];

    (void)thread;
    for (int j = item * AT_ONCE; j < min_int(w->n, (item + 1) * AT_ONCE); j++) {
        uint16_t *to = w->to + (size_t)j * (size_t)n_col;
        w->d->ops->kv_decode(w->d, w->t, w->rows + (size_t)j * row, NULL, 1, hd, x);
        cb_store_skewed(w->s, w->kv, x, y);
        for (int c = 0; c < n_col; c++)
            to[c] = cb_f32_to_f16(y[c]);
    }
}

/* ---- blocks ---- */

/* n_block blocks of rows -> the sketches of the slots after those that are sketched */
static void draw(struct store *s, struct device *d, int kv, enum kv_type t, const void *rows,
                 int n_block)
{
    uint8_t *to = cb_store_sketch_at(s, kv, s->sketched);

    if (s->sketch_columns) {
        struct drawing w = { s, d, kv, n_block, t, rows, (uint16_t *)(void *)to };
        cb_par_for(d->par, (n_block + AT_ONCE - 1) / AT_ONCE, draw_partial, &w);
    } else if (s->sketch_bits)
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

/* Whole blocks that have none */
static int due(const struct store *s)
{
    return s->sketch_block ? (s->n[0] - s->sketched) / s->sketch_block : 0;
}

int cb_store_sketch_reads(const struct store *s)
{
    return due(s) > 0 && (s->sketch_columns || s->sketch_bits || s->kivi);
}

int cb_store_sketch(struct store *s, struct device *d)
{
    int n_block = due(s);

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

    if (!left)
        s->skewed_at = 0;
    if (s->sketched <= left)
        return;
    for (int h = 0; h < s->n_kv; h++)
        cb_pages_give_back(cb_store_sketch_at(s, h, left), cb_store_sketch_at(s, h, s->sketched));
    s->sketched = left;
}

void cb_store_sketch_deal_out(struct store *s, const int *keep, int n)
{
    const size_t bytes = s->sketch_block ? block_bytes(s) : 0;
    int left = 0;

    for (; bytes && left + s->sketch_block <= n && keep[left] < s->sketched;
         left += s->sketch_block)
        for (int h = 0; keep[left] > left && h < s->n_kv; h++)
            memmove(cb_store_sketch_at(s, h, left), cb_store_sketch_at(s, h, keep[left]), bytes);
    cb_store_sketch_cut(s, left);
}

int cb_store_sketch_fit(struct store *s)
{
    s->sketched = s->sketch_block ? s->n[0] / s->sketch_block * s->sketch_block : 0;
    return s->sketched ? need_memory(s) : CB_OK;
}
