/* SPDX-License-Identifier: MIT */
/* store_prepack.c - replaces rows by blocks in the form that a device's attention multiplies. It
 * serves layers that every token reads whole: a row is converted once instead of once for each
 * token. Rows that a policy wants to read or drop are unpacked. */
#include "store_prepack.h"

#include <stdlib.h>

#include "base/err.h"
#include "device/prepacked.h"
#include "pages.h"

static int has_steps(const struct store *s, int v)
{
    return cb_kv_has_steps(v ? s->type_v : s->type_k);
}

static size_t step_bytes(const struct store *s)
{
    return cb_pages_up((size_t)s->n_kv * (size_t)s->cap * sizeof(float));
}

void cb_store_may_prepack(struct store *s, struct device *d)
{
    s->may_prepack = 1;
    if (!s->kivi && !s->rows_only && d->ops->can_prepack &&
        d->ops->can_prepack(d, s->type_k, s->type_v, s->hd))
        s->prepacker = d;
}

void cb_store_prepack_close(struct store *s)
{
    for (int v = 0; v < 2; v++)
        cb_pages_release(s->step[v], step_bytes(s));
}

float *cb_store_steps(const struct store *s, int kv, int v, int row)
{
    return s->step[v] ? s->step[v] + (size_t)kv * (size_t)s->cap + (size_t)row : NULL;
}

/* Rows that every head has; 0 if some head's rows must be read in an order other than memory's */
static int common_rows(const struct store *s)
{
    int n = s->rows[0];

    for (int h = 0; h < s->n_kv; h++) {
        n = s->rows[h] < n ? s->rows[h] : n;
        if (s->mixed[h] && !s->any_order)
            return 0;
    }
    return n;
}

int cb_store_need_steps(struct store *s, int v)
{
    return s->step[v] || !has_steps(s, v) ? CB_OK : cb_pages_reserve(step_bytes(s), &s->step[v]);
}

int cb_store_prepack_due(const struct store *s)
{
    return s->prepacker ? (common_rows(s) - s->prepacked) / KV_PREPACK : 0;
}

int cb_store_prepack(struct store *s)
{
    struct device *d = s->prepacker;
    const int n_block = cb_store_prepack_due(s);

    if (n_block <= 0)
        return CB_OK;
    for (int v = 0; v < 2; v++)
        TRY(cb_store_need_steps(s, v));
    for (int i = 0; i < 2 * s->n_kv; i++) {
        const int h = i / 2, v = i % 2;
        d->ops->prepack(d, v ? s->type_v : s->type_k, v, s->hd, cb_store_row(s, h, v, s->prepacked),
                        n_block, cb_store_steps(s, h, v, s->prepacked));
    }
    s->prepacked += n_block * KV_PREPACK;
    return CB_OK;
}

static void unpack_block(const struct store *s, int h, int v, int row, void *to)
{
    s->prepacker->ops->unpack(s->prepacker, v ? s->type_v : s->type_k, v, s->hd,
                              cb_store_row(s, h, v, row), cb_store_steps(s, h, v, row), 0,
                              KV_PREPACK, to);
}

const void *cb_store_key_block(const struct store *s, int kv, int b, void *to)
{
    const int row = b * KV_PREPACK;

    if (row >= s->prepacked)
        return cb_store_key(s, kv, row);
    unpack_block(s, kv, 0, row, to);
    return to;
}

void cb_store_unpack(struct store *s, int from, int n)
{
    from = from / KV_PREPACK * KV_PREPACK;
    n = n < s->prepacked ? n : s->prepacked;
    for (int row = from; row < n; row += KV_PREPACK)
        for (int i = 0; i < 2 * s->n_kv; i++)
            unpack_block(s, i / 2, i % 2, row, cb_store_row(s, i / 2, i % 2, row));
    s->prepacked = from < s->prepacked ? from : s->prepacked;
}

void cb_store_unpack_all(struct store *s)
{
    if (s->prepacked)
        cb_store_unpack(s, 0, s->prepacked);
    s->prepacker = NULL;
}

int cb_store_repack(struct store *s, struct device *d, int panel)
{
    float *x = cb_calloc((size_t)KV_PREPACK * (size_t)s->hd, sizeof *x);
    const int n = s->prepacked;

    if (!x)
        return CB_ENOMEM;
    for (int row = 0; row < n; row += KV_PREPACK)
        for (int i = 0; i < 2 * s->n_kv; i++) {
            const int h = i / 2, v = i % 2;
            void *block = cb_store_row(s, h, v, row);
            cb_prepacked_open(d, v ? s->type_v : s->type_k, v, s->hd, panel, block,
                              cb_store_steps(s, h, v, row), x, block);
        }
    free(x);
    s->prepacked = 0;
    TRY(cb_device_wait(d));
    return cb_store_prepack(s);
}

uint64_t cb_store_step_bytes(const struct store *s, int n)
{
    const size_t slot = (size_t)(has_steps(s, 0) + has_steps(s, 1)) * sizeof(float);
    return s->prepacker ? (uint64_t)(n / KV_PREPACK * KV_PREPACK) * slot : 0;
}

void cb_store_deal_steps(struct store *s, int kv, const int *keep, int n)
{
    for (int v = 0; v < 2; v++) {
        float *step = cb_store_steps(s, kv, v, 0);
        for (int i = 0; step && i < n; i++)
            step[i] = step[keep[i]];
    }
}
