/* SPDX-License-Identifier: MIT */
/* store.c - one layer's keys and values in reserved address space. */
#include "store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "pages.h"
#include "store_kivi.h"
#include "store_prepack.h"
#include "store_sketch.h"

size_t cb_store_list_bytes(const struct store *s)
{
    return cb_pages_up((size_t)s->n_kv * (size_t)s->cap * sizeof *s->pos);
}

static size_t col_bytes(const struct store *s)
{
    return cb_pages_up((size_t)s->n_kv * (size_t)s->n_col * (size_t)s->cap * sizeof *s->col);
}

static int open_columns(struct store *s, int n_col)
{
    s->n_col = n_col;
    return n_col ? cb_pages_reserve(col_bytes(s), &s->col) : CB_OK;
}

int cb_store_open(struct store *s, int n_kv, int hd, int cap, enum kv_type type_k,
                  enum kv_type type_v, int n_col)
{
    *s = (struct store){ .n_kv = n_kv,
                         .hd = hd,
                         .cap = cap,
                         .type_k = type_k,
                         .type_v = type_v,
                         .row_k = cb_kv_row_bytes(type_k, hd),
                         .row_v = cb_kv_row_bytes(type_v, hd) };
    s->head_k = cb_pages_head(s->row_k * (size_t)cap);
    s->head_v = cb_pages_head(s->row_v * (size_t)cap);
    s->n = cb_calloc((size_t)n_kv, sizeof *s->n);
    s->rows = cb_calloc((size_t)n_kv, sizeof *s->rows);
    s->gap_lo = cb_calloc((size_t)n_kv, sizeof *s->gap_lo);
    s->gap_hi = cb_calloc((size_t)n_kv, sizeof *s->gap_hi);
    s->hole = cb_calloc((size_t)n_kv, sizeof *s->hole);
    s->mixed = cb_calloc((size_t)n_kv, sizeof *s->mixed);
    if (!s->n || !s->rows || !s->hole || !s->mixed || !s->gap_lo || !s->gap_hi)
        return CB_ENOMEM;
    for (int h = 0; h < n_kv; h++)
        s->hole[h] = -1;
    if (!n_kv)
        return CB_OK;
    TRY(cb_pages_reserve(s->head_k * (size_t)n_kv, &s->k));
    TRY(cb_pages_reserve(s->head_v * (size_t)n_kv, &s->v));
    return open_columns(s, n_col);
}

int cb_store_pair(struct store *earlier, struct store *later)
{
    assert(!earlier->n_col && !earlier->kivi && !later->kivi);
    earlier->later = later;
    earlier->retained = cb_calloc(2 * (size_t)earlier->n_kv, sizeof *earlier->retained);
    return earlier->retained ? open_columns(earlier, cb_store_sides(earlier)) : CB_ENOMEM;
}

void cb_store_share_rows(struct store *s)
{
    cb_pages_release(s->v, s->head_v * (size_t)s->n_kv);
    s->v = s->k;
    s->row_v = s->row_k;
    s->head_v = s->head_k;
    s->type_v = s->type_k;
    s->one_row = s->rows_only = 1;
}

int cb_store_mirror(struct store *s, struct device *d)
{
    const struct device_memory *m = d->ops->memory;

    if (!m)
        return CB_OK;
    s->mirror = d;
    for (int h = 0; h < s->n_kv; h++) {
        TRY(m->watch(d, cb_store_key(s, h, 0), s->row_k, (size_t)s->cap));
        if (!s->one_row)
            TRY(m->watch(d, cb_store_value(s, h, 0), s->row_v, (size_t)s->cap));
    }
    return s->kivi ? cb_kivi_mirror(s, d) : CB_OK;
}

static void end_mirror(struct store *s)
{
    for (int h = 0; s->mirror && s->k && s->v && h < s->n_kv; h++) {
        s->mirror->ops->memory->unwatch(s->mirror, cb_store_key(s, h, 0));
        if (!s->one_row)
            s->mirror->ops->memory->unwatch(s->mirror, cb_store_value(s, h, 0));
    }
}

void cb_store_close(struct store *s)
{
    end_mirror(s);
    cb_kivi_close(s);
    cb_pages_release(s->k, s->head_k * (size_t)s->n_kv);
    if (!s->one_row)
        cb_pages_release(s->v, s->head_v * (size_t)s->n_kv);
    cb_pages_release(s->pos, cb_store_list_bytes(s));
    cb_pages_release(s->row, cb_store_list_bytes(s));
    cb_pages_release(s->col, col_bytes(s));
    cb_store_prepack_close(s);
    cb_store_sketch_close(s);
    free(s->retained);
    free(s->n);
    free(s->rows);
    free(s->hole);
    free(s->mixed);
    free(s->gap_lo);
    free(s->gap_hi);
    *s = (struct store){ 0 };
}

void cb_store_huge_pages(struct store *s)
{
    for (int h = 0; h < s->n_kv && !s->kivi && !s->later && !s->small_pages; h++) {
        if (s->gap_hi[h] > s->gap_lo[h]) /* a huge page would bring the gap's freed memory back */
            continue;
        for (int v = 0; v < cb_store_sides(s); v++)
            cb_pages_collapse(cb_store_row(s, h, v, 0), cb_store_row(s, h, v, s->rows[h]));
    }
}

/* Frees pages of the gap's keys, except those freed before; slot i lies in row i. */
void cb_store_release_gap(struct store *s, int kv, int had_hi)
{
    uint8_t *from = cb_store_key(s, kv, s->gap_lo[kv]), *had = cb_store_key(s, kv, had_hi);

    had -= (uintptr_t)had % cb_pages_up(1);
    cb_pages_give_back(had > from ? had : from, cb_store_key(s, kv, s->gap_hi[kv]));
}

void cb_store_drop_keys(struct store *s, int kv, int lo, int hi)
{
    const int had = s->gap_hi[kv];

    if (hi <= lo || (had > 0 && hi <= had))
        return;
    s->gap_lo[kv] = lo;
    s->gap_hi[kv] = hi;
    cb_store_release_gap(s, kv, had);
}

struct kv_run cb_store_run(const struct store *s, int kv, int from, int to)
{
    struct kv_run run = { .n = to - from };

    assert(s->hole[kv] < 0);
    if (cb_kivi_any(s)) {
        run.k = cb_store_key(s, kv, 0);
        run.v = cb_store_value(s, kv, 0);
        run.kivi = &s->kivi->head[kv];
        run.first = from;
    } else if (s->mixed[kv]) {
        run.k = cb_store_key(s, kv, 0);
        run.v = cb_store_value(s, kv, 0);
        *(s->any_order && from == 0 && to == s->n[kv] ? &run.order : &run.idx) =
            s->row + cb_store_at(s, kv, from);
    } else {
        run.k = cb_store_key(s, kv, from);
        run.v = cb_store_value(s, kv, from);
    }
    if (s->prepacked) {
        assert(from == 0 && to >= s->prepacked && !run.idx);
        run.prepacked = s->prepacked;
        run.step_k = cb_store_steps(s, kv, 0, 0);
        run.step_v = cb_store_steps(s, kv, 1, 0);
    }
    return run;
}

int cb_store_max_len(const struct store *s)
{
    int m = 0;
    for (int h = 0; h < s->n_kv; h++)
        m = s->n[h] > m ? s->n[h] : m;
    return m;
}

int cb_store_min_len(const struct store *s)
{
    int m = s->n[0];
    for (int h = 1; h < s->n_kv; h++)
        m = s->n[h] < m ? s->n[h] : m;
    return m;
}

int32_t cb_store_pos(const struct store *s, int kv, int slot)
{
    return s->pos ? s->pos[cb_store_at(s, kv, slot)] : slot;
}

int cb_store_is_whole(const struct store *s, int n)
{
    return !s->pos && !s->merged && s->n[0] == n && !cb_kivi_any(s);
}

uint64_t cb_store_run_bytes(const struct store *s, const struct kv_run *run)
{
    return run->kivi
               ? cb_kivi_run_bytes(s, run)
               : (uint64_t)run->n * cb_store_slot_bytes(s) + cb_store_step_bytes(s, run->prepacked);
}

uint64_t cb_store_value_bytes(const struct store *s, const struct kv_run *run)
{
    return run->kivi ? cb_kivi_value_bytes(s, run) : (uint64_t)run->n * s->row_v;
}

uint64_t cb_store_bytes_of(const struct store *s, int kv, int n)
{
    return cb_store_bytes_from(s, kv, 0, n) + cb_store_beside_of(s, n);
}

uint64_t cb_store_bytes_from(const struct store *s, int kv, int first, int n)
{
    return s->kivi ? cb_kivi_bytes_of(s, kv, first, n)
                   : (uint64_t)(n - first) * cb_store_slot_bytes(s);
}

uint64_t cb_store_old_bytes(const struct store *s, int n)
{
    return s->kivi ? cb_kivi_old_bytes(s, n) : (uint64_t)n * cb_store_slot_bytes(s);
}

uint64_t cb_store_beside_of(const struct store *s, int n)
{
    return (s->kivi ? 0 : cb_store_step_bytes(s, n)) + cb_store_sketch_bytes(s, n) +
           (n ? cb_store_skew_bytes(s) : 0);
}

uint64_t cb_store_beside(const struct store *s)
{
    const size_t slot = (s->pos ? sizeof *s->pos : 0) + (s->row ? sizeof *s->row : 0) +
                        (size_t)s->n_col * sizeof(float);
    uint64_t sum = 0;

    for (int h = 0; h < s->n_kv; h++)
        sum += (uint64_t)s->n[h] * slot + cb_store_step_bytes(s, s->prepacked) +
               cb_store_sketch_bytes(s, s->sketched) + (s->sketched ? cb_store_skew_bytes(s) : 0);
    return sum;
}

/* Bytes of rows that merged slots of a head need no more */
static uint64_t freed(const struct store *s, int kv)
{
    uint64_t sum = 0;

    for (int v = 0; s->later && v < cb_store_sides(s); v++)
        sum += (uint64_t)(s->merged - *cb_store_retained(s, kv, v)) * (v ? s->row_v : s->row_k);
    return sum;
}

uint64_t cb_store_bytes(const struct store *s)
{
    uint64_t sum = cb_store_beside(s);

    for (int h = 0; h < s->n_kv; h++)
        sum += (s->kivi ? cb_kivi_bytes(s, h) : (uint64_t)s->rows[h] * cb_store_slot_bytes(s)) -
               (uint64_t)(s->gap_hi[h] - s->gap_lo[h]) * s->row_k - freed(s, h);
    return sum;
}
