/* SPDX-License-Identifier: MIT */
/* store_areas.c - a store as plain data. Every number of a file is checked before it is used: a
 * damaged or hostile file must not lead outside the store. */
#include "store_areas.h"

#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "pages.h"
#include "store.h"
#include "store_kivi.h"
#include "store_pair.h"
#include "store_prepack.h"
#include "store_sketch.h"

/* ---- counts ---- */

enum {
    C_PREPACKER,
    C_PREPACKED,
    C_ANY_ORDER,
    C_DROPPED_AT,
    C_POS,
    C_ROW,
    C_MAP_KEYS,
    C_MAP_VALUES,
    N_STORE
};
enum {
    H_N,
    H_ROWS,
    H_HOLE,
    H_MIXED,
    H_GAP_LO,
    H_GAP_HI,
    H_KIVI_BITS,
    H_KIVI_LO_K,
    H_KIVI_LO_V,
    H_KIVI_N_K,
    H_KIVI_N_V,
    H_KIVI_ROWS_K,
    H_KIVI_ROWS_V,
    N_HEAD
};

/* Where the counts of a pair begin: how many slots are merged, and how many of them each head
 * retains */
static int pair_at(const struct store *s)
{
    return N_STORE + N_HEAD * s->n_kv;
}

int cb_store_n_counts(const struct store *s)
{
    return pair_at(s) + (s->later ? 1 + 2 * s->n_kv : 0);
}

void cb_store_counts(const struct store *s, int32_t *out)
{
    out[C_PREPACKER] = s->prepacker != NULL;
    out[C_PREPACKED] = s->prepacked;
    out[C_ANY_ORDER] = s->any_order;
    out[C_DROPPED_AT] = s->dropped_at;
    out[C_POS] = s->pos != NULL;
    out[C_ROW] = s->row != NULL;
    out[C_MAP_KEYS] = s->kivi && s->kivi->map[0];
    out[C_MAP_VALUES] = s->kivi && s->kivi->map[1];
    for (int h = 0; h < s->n_kv; h++) {
        int32_t *c = out + N_STORE + N_HEAD * h;
        c[H_N] = s->n[h];
        c[H_ROWS] = s->rows[h];
        c[H_HOLE] = s->hole[h];
        c[H_MIXED] = s->mixed[h];
        c[H_GAP_LO] = s->gap_lo[h];
        c[H_GAP_HI] = s->gap_hi[h];
        c[H_KIVI_BITS] = s->kivi ? s->kivi->head[h].bits_k : 0;
        c[H_KIVI_LO_K] = s->kivi ? s->kivi->head[h].lo_k : 0;
        c[H_KIVI_LO_V] = s->kivi ? s->kivi->head[h].lo_v : 0;
        c[H_KIVI_N_K] = s->kivi ? s->kivi->head[h].n_k : 0;
        c[H_KIVI_N_V] = s->kivi ? s->kivi->head[h].n_v : 0;
        c[H_KIVI_ROWS_K] = s->kivi ? s->kivi->rows_k[h] : 0;
        c[H_KIVI_ROWS_V] = s->kivi ? s->kivi->rows_v[h] : 0;
    }
    if (s->later) {
        out[pair_at(s)] = s->merged;
        memcpy(out + pair_at(s) + 1, s->retained, 2 * (size_t)s->n_kv * sizeof *s->retained);
    }
}

static int in(int32_t x, int32_t lo, int32_t hi)
{
    return x >= lo && x <= hi;
}

static int is_flag(int32_t x)
{
    return in(x, 0, 1);
}

/* Slots lo..n-1 are quantised, or none; `rows` rows are in use, those of dropped slots included. */
static int quantised_fit(int lo, int n, int rows, const struct kivi_form *f, int n_slot, int most)
{
    return in(lo, 0, f->first) && in(rows, 0, f->bits ? most : 0) &&
           (!n || (in(n, lo + 1, n_slot) && n - lo <= rows));
}

/* Keys in planes are those of whole blocks, in order. */
static int planes_fit(const struct store *s, const int32_t *c)
{
    const int lo = s->kivi->form_k.first;

    return c[H_KIVI_BITS] == KIVI_PLANES && c[H_KIVI_LO_K] == lo &&
           c[H_KIVI_N_K] % s->sketch_block == 0 &&
           c[H_KIVI_ROWS_K] == (c[H_KIVI_N_K] ? c[H_KIVI_N_K] - lo : 0);
}

static int kivi_head_fits(const struct store *s, const int32_t *c)
{
    const struct kivi_store *q = s->kivi;

    if (!q)
        return !c[H_KIVI_BITS] && !c[H_KIVI_LO_K] && !c[H_KIVI_LO_V] && !c[H_KIVI_N_K] &&
               !c[H_KIVI_N_V] && !c[H_KIVI_ROWS_K] && !c[H_KIVI_ROWS_V];
    return (!cb_kivi_planes(s) || planes_fit(s, c)) &&
           (!c[H_KIVI_BITS] || c[H_KIVI_BITS] == q->form_k.bits) &&
           quantised_fit(c[H_KIVI_LO_K], c[H_KIVI_N_K], c[H_KIVI_ROWS_K], &q->form_k, c[H_N],
                         cb_kivi_most_rows(s)) &&
           c[H_KIVI_ROWS_K] % q->form_k.group == 0 &&
           quantised_fit(c[H_KIVI_LO_V], c[H_KIVI_N_V], c[H_KIVI_ROWS_V], &q->form_v, c[H_N],
                         cb_kivi_most_rows(s));
}

static int head_fits(const struct store *s, const int32_t *counts, const int32_t *c)
{
    const int has_hole = c[H_HOLE] >= 0;

    return in(c[H_N], 0, s->cap) && in(c[H_ROWS], 0, s->cap) && is_flag(c[H_MIXED]) &&
           c[H_ROWS] == c[H_N] + has_hole && in(c[H_HOLE], -1, c[H_ROWS] - 1) &&
           (!has_hole || c[H_MIXED]) && (!c[H_MIXED] || (counts[C_ROW] && counts[C_POS])) &&
           in(c[H_GAP_LO], 0, c[H_GAP_HI]) && in(c[H_GAP_HI], 0, c[H_N]) &&
           (c[H_GAP_HI] == c[H_GAP_LO] || (!c[H_MIXED] && !counts[C_PREPACKED])) &&
           (!c[H_MIXED] || !s->kivi) && counts[C_PREPACKED] <= c[H_ROWS] && kivi_head_fits(s, c);
}

/* Merged slots are the first ones of heads that have dropped none. */
static int pair_fits(const struct store *s, const int32_t *c)
{
    const int32_t *pair = c + pair_at(s);
    int ok = !s->later || (!c[C_POS] && !c[C_PREPACKED]);

    for (int h = 0; ok && s->later && h < s->n_kv; h++)
        ok = in(pair[0], 0, c[N_STORE + N_HEAD * h + H_N]) && in(pair[1 + 2 * h], 0, pair[0]) &&
             in(pair[2 + 2 * h], 0, pair[0]);
    return ok;
}

static int fits(const struct store *s, const int32_t *c)
{
    int ok = is_flag(c[C_PREPACKER]) && is_flag(c[C_ANY_ORDER]) && is_flag(c[C_POS]) &&
             is_flag(c[C_ROW]) && is_flag(c[C_MAP_KEYS]) && is_flag(c[C_MAP_VALUES]) &&
             c[C_DROPPED_AT] >= 0 && c[C_PREPACKED] >= 0 && c[C_PREPACKED] % KV_PREPACK == 0 &&
             (!c[C_PREPACKED] || c[C_PREPACKER]) && (!c[C_PREPACKER] || !(s->kivi || s->one_row)) &&
             (s->kivi || (!c[C_MAP_KEYS] && !c[C_MAP_VALUES])) &&
             !(cb_kivi_planes(s) && c[C_MAP_KEYS]);

    for (int h = 0; ok && s->sketch_block && h < s->n_kv; h++) /* no slot was dropped */
        ok = !c[C_POS] && c[N_STORE + N_HEAD * h + H_N] == c[N_STORE + H_N];
    for (int h = 0; ok && h < s->n_kv; h++)
        ok = head_fits(s, c, c + N_STORE + N_HEAD * h);
    return ok && pair_fits(s, c);
}

static void set_head(struct store *s, int h, const int32_t *c)
{
    s->n[h] = c[H_N];
    s->rows[h] = c[H_ROWS];
    s->hole[h] = c[H_HOLE];
    s->mixed[h] = c[H_MIXED];
    s->gap_lo[h] = c[H_GAP_LO];
    s->gap_hi[h] = c[H_GAP_HI];
    if (!s->kivi)
        return;
    s->kivi->head[h].bits_k = c[H_KIVI_BITS];
    s->kivi->head[h].lo_k = c[H_KIVI_LO_K];
    s->kivi->head[h].lo_v = c[H_KIVI_LO_V];
    s->kivi->head[h].n_k = c[H_KIVI_N_K];
    s->kivi->head[h].n_v = c[H_KIVI_N_V];
    s->kivi->rows_k[h] = c[H_KIVI_ROWS_K];
    s->kivi->rows_v[h] = c[H_KIVI_ROWS_V];
}

static int need_list(const struct store *s, int wanted, int32_t **list)
{
    return wanted && !*list ? cb_pages_reserve(cb_store_list_bytes(s), list) : CB_OK;
}

int cb_store_set_counts(struct store *s, struct device *d, const int32_t *c)
{
    if (!fits(s, c))
        return cb_fail(CB_EFORMAT, "its counts of slots contradict each other");
    if (!s->may_prepack && (c[C_PREPACKER] || c[C_PREPACKED]))
        return cb_fail(CB_EFORMAT, "rows are prepacked that are read one by one");
    s->prepacker = NULL;
    if (c[C_PREPACKER])
        cb_store_may_prepack(s, d);
    s->prepacked = c[C_PREPACKED];
    s->any_order = c[C_ANY_ORDER];
    s->dropped_at = c[C_DROPPED_AT];
    TRY(need_list(s, c[C_POS], &s->pos));
    TRY(need_list(s, c[C_ROW], &s->row));
    for (int v = 0; v < 2; v++) {
        if (s->prepacked)
            TRY(cb_store_need_steps(s, v));
        if (c[v ? C_MAP_VALUES : C_MAP_KEYS])
            TRY(cb_kivi_need_map(s, v));
    }
    for (int h = 0; h < s->n_kv; h++)
        set_head(s, h, c + N_STORE + N_HEAD * h);
    if (s->later) {
        s->merged = c[pair_at(s)];
        memcpy(s->retained, c + pair_at(s) + 1, 2 * (size_t)s->n_kv * sizeof *s->retained);
    }
    return cb_store_sketch_fit(s);
}

int cb_store_adopt_counts(struct store *s, struct device *d, const int32_t *c)
{
    const int may_prepack = s->may_prepack;
    int err;

    s->may_prepack = 1;
    err = cb_store_set_counts(s, d, c);
    s->may_prepack = may_prepack;
    s->sketched = 0;
    return err;
}

/* ---- areas ---- */

struct list {
    struct area *out;
    int layer, n;
};

static void add(struct list *x, enum area_kind kind, int head, void *base, uint64_t from,
                uint64_t bytes)
{
    if (bytes)
        x->out[x->n++] =
            (struct area){ kind, x->layer, head, from, (uint8_t *)base + from, (size_t)bytes };
}

/* Rows lo..hi-1 of a head's keys (v = 0) or values */
static void add_rows(struct list *x, const struct store *s, int h, int v, int lo, int hi)
{
    const size_t row = v ? s->row_v : s->row_k;

    if (hi > lo)
        add(x, v ? AREA_VALUES : AREA_KEYS, h, cb_store_row(s, h, v, 0), row * (size_t)lo,
            row * (size_t)(hi - lo));
}

static void add_kivi(struct list *x, const struct store *s, int h)
{
    for (int v = 0; v < 2; v++) {
        const struct kv_kivi *q = &s->kivi->head[h];
        const int lo = min_int(s->n[h], v ? q->lo_v : q->lo_k);
        const int n = max_int(lo, v ? q->n_v : q->n_k);
        add_rows(x, s, h, v, 0, lo); /* quantised slots have no rows */
        add_rows(x, s, h, v, n, s->n[h]);
        add(x, v ? AREA_KIVI_VALUES : AREA_KIVI_KEYS, h, cb_kivi_memory(s, h, v), 0,
            cb_kivi_memory_bytes(s, h, v));
        if (s->kivi->map[v])
            add(x, v ? AREA_KIVI_MAP_VALUES : AREA_KIVI_MAP_KEYS, h,
                s->kivi->map[v] + cb_store_at(s, h, lo), 0, (uint64_t)(n - lo) * sizeof(int32_t));
    }
}

static void add_pair(struct list *x, const struct store *s, int h)
{
    for (int v = 0; v < cb_store_sides(s); v++) {
        add_rows(x, s, h, v, 0, *cb_store_retained(s, h, v));
        add_rows(x, s, h, v, s->merged, s->rows[h]);
    }
}

static void add_head(struct list *x, const struct store *s, int h)
{
    const uint64_t n = (uint64_t)s->n[h];

    if (s->pos)
        add(x, AREA_POS, h, s->pos + cb_store_at(s, h, 0), 0, n * sizeof *s->pos);
    if (s->row && s->mixed[h])
        add(x, AREA_ROW, h, s->row + cb_store_at(s, h, 0), 0, n * sizeof *s->row);
    for (int c = 0; c < s->n_col; c++)
        add(x, AREA_COLUMN, h * s->n_col + c, cb_store_col(s, h, c), 0, n * sizeof *s->col);
    for (int v = 0; v < 2; v++)
        if (cb_store_steps(s, h, v, 0))
            add(x, v ? AREA_STEP_VALUES : AREA_STEP_KEYS, h, cb_store_steps(s, h, v, 0), 0,
                (uint64_t)s->prepacked * sizeof(float));
    if (s->sketched)
        add(x, AREA_SKETCH, h, cb_store_sketch_at(s, h, 0), 0,
            cb_store_sketch_bytes(s, s->sketched));
    if (s->sketched && s->skew)
        add(x, AREA_SKEW, h, cb_store_skew(s, h), 0, cb_store_skew_bytes(s));
    if (s->kivi) {
        add_kivi(x, s, h);
        return;
    }
    if (s->later) {
        add_pair(x, s, h);
        return;
    }
    add_rows(x, s, h, 0, 0, s->gap_hi[h] > s->gap_lo[h] ? s->gap_lo[h] : s->rows[h]);
    if (s->gap_hi[h] > s->gap_lo[h])
        add_rows(x, s, h, 0, s->gap_hi[h], s->rows[h]);
    if (!s->one_row)
        add_rows(x, s, h, 1, 0, s->rows[h]);
}

int cb_store_most_areas(const struct store *s)
{
    return s->n_kv * (AREA_STORE_KINDS + s->n_col) + 1;
}

int cb_store_areas(const struct store *s, int l, struct area *out)
{
    struct list x = { out, l, 0 };

    if (s->sketched && s->skew)
        add(&x, AREA_SKEWED_AT, 0, (void *)(uintptr_t)&s->skewed_at, 0, sizeof s->skewed_at);
    for (int h = 0; h < s->n_kv; h++)
        add_head(&x, s, h);
    return x.n;
}

size_t cb_store_area_of(const struct store *s, enum area_kind kind, int n)
{
    switch (kind) {
    case AREA_KEYS:
        return s->row_k * (size_t)n;
    case AREA_VALUES:
        return s->row_v * (size_t)n;
    case AREA_STEP_KEYS:
    case AREA_STEP_VALUES:
        return (size_t)n * sizeof(float);
    case AREA_SKETCH:
        return (size_t)cb_store_sketch_bytes(s, n);
    default:
        return 0;
    }
}

/* ---- lists ---- */

/* Ascending numbers from 0 up to below n */
static int ascends(const int32_t *list, int n, int below)
{
    for (int i = 0; i < n; i++)
        if (list[i] <= (i ? list[i - 1] : -1) || list[i] >= below)
            return 0;
    return 1;
}

/* Rows of mixed slots: each row below n_row at most once. A row that two slots share would be
 * harmless to memory, so only the range is checked. */
static int in_range(const int32_t *list, int n, int below)
{
    for (int i = 0; i < n; i++)
        if (!in(list[i], 0, below - 1))
            return 0;
    return 1;
}

int cb_store_check_lists(const struct store *s, int n_seen)
{
    if (s->skew && s->sketched && !in(s->skewed_at, 1, n_seen))
        return cb_fail(CB_EFORMAT, "the skew of its partial keys is damaged");
    for (int h = 0; h < s->n_kv; h++) {
        const struct kv_kivi *q = s->kivi ? &s->kivi->head[h] : NULL;
        const size_t at = cb_store_at(s, h, 0);
        int ok = s->pos ? ascends(s->pos + at, s->n[h], n_seen) : s->n[h] <= n_seen;

        ok = ok && (!s->row || !s->mixed[h] || in_range(s->row + at, s->n[h], s->rows[h]));
        if (q && s->kivi->map[0])
            ok =
                ok && ascends(s->kivi->map[0] + at + q->lo_k, q->n_k - q->lo_k, s->kivi->rows_k[h]);
        if (q && s->kivi->map[1])
            ok =
                ok && ascends(s->kivi->map[1] + at + q->lo_v, q->n_v - q->lo_v, s->kivi->rows_v[h]);
        ok = ok && cb_store_pair_fits(s, h);
        if (!ok)
            return cb_fail(CB_EFORMAT, "its lists of slots are damaged");
    }
    return CB_OK;
}
