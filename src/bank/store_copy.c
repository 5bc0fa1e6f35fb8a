/* SPDX-License-Identifier: MIT */
/* store_copy.c - copies one store to another. Pages that the source does not use are not touched,
 * so that the copy takes no more memory than the source. */
#include "store_copy.h"

#include <string.h>

#include "base/err.h"

#include "pages.h"
#include "store.h"
#include "store_kivi.h"
#include "store_prepack.h"
#include "store_rows.h"

static size_t row_bytes(const struct store *s, int v)
{
    return v ? s->row_v : s->row_k;
}

/* Rows from..to-1 of a head's keys or values, prepacked or not */
static void copy_rows(struct store *to, const struct store *from, int kv, int v, int lo, int hi)
{
    if (hi <= lo)
        return;
    memcpy(cb_store_row(to, kv, v, lo), cb_store_row(from, kv, v, lo),
           row_bytes(from, v) * (size_t)(hi - lo));
    cb_store_wrote(to, cb_store_row(to, kv, v, lo), row_bytes(from, v) * (size_t)(hi - lo));
}

/* Copies a list [n_kv][cap] of slots; *from may be NULL */
static int copy_list(const struct store *s, int32_t *const *from, int32_t **to)
{
    if (!*from)
        return CB_OK;
    TRY(cb_pages_reserve(cb_store_list_bytes(s), to));
    for (int h = 0; h < s->n_kv; h++)
        memcpy(*to + cb_store_at(s, h, 0), *from + cb_store_at(s, h, 0),
               (size_t)s->n[h] * sizeof **to);
    return CB_OK;
}

static int copy_steps(struct store *to, const struct store *from)
{
    for (int v = 0; v < 2; v++) {
        if (!from->step[v])
            continue;
        TRY(cb_store_need_steps(to, v));
        for (int h = 0; h < from->n_kv; h++)
            memcpy(cb_store_steps(to, h, v, 0), cb_store_steps(from, h, v, 0),
                   (size_t)from->prepacked * sizeof(float));
    }
    return CB_OK;
}

static void copy_head(struct store *to, const struct store *from, int kv)
{
    const int n = from->rows[kv], lo = from->gap_lo[kv], hi = from->gap_hi[kv];
    const struct kv_kivi *q = from->kivi ? &from->kivi->head[kv] : NULL;

    to->n[kv] = from->n[kv];
    to->rows[kv] = from->rows[kv];
    to->hole[kv] = from->hole[kv];
    to->mixed[kv] = from->mixed[kv];
    to->gap_lo[kv] = lo;
    to->gap_hi[kv] = hi;
    for (int c = 0; c < from->n_col; c++)
        memcpy(cb_store_col(to, kv, c), cb_store_col(from, kv, c),
               (size_t)from->n[kv] * sizeof(float));
    if (q) { /* quantised slots have no rows */
        copy_rows(to, from, kv, 0, q->n_k, n);
        copy_rows(to, from, kv, 1, q->n_v, n);
        return;
    }
    copy_rows(to, from, kv, 0, 0, hi > lo ? lo : n);
    copy_rows(to, from, kv, 0, hi > lo ? hi : n, n);
    copy_rows(to, from, kv, 1, 0, n);
}

int cb_store_copy(struct store *to, const struct store *from)
{
    cb_store_cut(to, 0);
    to->prepacker = from->prepacker;
    to->prepacked = from->prepacked;
    to->any_order = from->any_order;
    to->dropped_at = from->dropped_at;
    TRY(copy_list(from, &from->pos, &to->pos));
    TRY(copy_list(from, &from->row, &to->row));
    TRY(copy_steps(to, from));
    for (int h = 0; h < from->n_kv; h++)
        copy_head(to, from, h);
    return from->kivi ? cb_kivi_copy(to, from) : CB_OK;
}
