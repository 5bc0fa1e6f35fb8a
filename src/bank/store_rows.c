/* SPDX-License-Identifier: MIT */
/* store_rows.c - which row each slot lies in, and writing the rows. Slot i lies in row i until
 * slots are dropped one at a time. Then the next token takes the dropped slot's row, the head's
 * slots are mixed, and a list says which row each slot has. Rows in use are contiguous but for one
 * row that is empty between a drop and the next token: the hole. */
#include "store_rows.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#include "device/kivi.h"

#include "base/err.h"
#include "pages.h"
#include "store.h"
#include "store_kivi.h"
#include "store_planes.h"
#include "store_prepack.h"
#include "store_sketch.h"
#include "store_touch.h"

enum { MOST_ROW = 4 * KV_MAX_HD }; /* bytes of the largest row */

static int row_of(const struct store *s, int kv, int slot)
{
    return s->mixed[kv] ? s->row[cb_store_at(s, kv, slot)] : slot;
}

static enum kv_type type_of(const struct store *s, int v)
{
    return v ? s->type_v : s->type_k;
}

static size_t row_bytes(const struct store *s, int v)
{
    return v ? s->row_v : s->row_k;
}

/* ---- one row, prepacked or not ---- */

static void put_row(struct store *s, int kv, int v, int row, const void *from)
{
    const int block = row / KV_PREPACK * KV_PREPACK;

    if (row < s->prepacked) {
        s->prepacker->ops->prepack_row(s->prepacker, type_of(s, v), v, s->hd, from, row - block,
                                       cb_store_row(s, kv, v, block),
                                       cb_store_steps(s, kv, v, block));
        return;
    }
    memcpy(cb_store_row(s, kv, v, row), from, row_bytes(s, v));
    cb_store_wrote(s, cb_store_row(s, kv, v, row), row_bytes(s, v));
}

static void take_row(const struct store *s, int kv, int v, int row, void *to)
{
    const int block = row / KV_PREPACK * KV_PREPACK;

    if (row < s->prepacked)
        s->prepacker->ops->unpack(s->prepacker, type_of(s, v), v, s->hd,
                                  cb_store_row(s, kv, v, block), cb_store_steps(s, kv, v, block),
                                  row - block, 1, to);
    else
        memcpy(to, cb_store_row(s, kv, v, row), row_bytes(s, v));
}

static void write_row(struct store *s, struct device *d, int kv, int v, int row, const float *x)
{
    _Alignas(64) uint8_t coded[MOST_ROW];

    assert(row_bytes(s, v) <= sizeof coded);
    d->ops->kv_encode(d, type_of(s, v), x, 1, s->hd, s->hd, coded);
    put_row(s, kv, v, row, coded);
}

static void move_row(struct store *s, int kv, int from, int to)
{
    _Alignas(64) uint8_t row[MOST_ROW];

    for (int v = 0; v < cb_store_sides(s) && from != to; v++) {
        take_row(s, kv, v, from, row);
        put_row(s, kv, v, to, row);
    }
}

/* ---- rows of a head ---- */

static void shrink(struct store *s, int kv, int n_row)
{
    for (int v = 0; v < cb_store_sides(s); v++)
        cb_store_give_back(s, cb_store_row(s, kv, v, n_row), cb_store_row(s, kv, v, s->rows[kv]));
    s->rows[kv] = n_row;
    assert(s->prepacked <= n_row);
}

/* Moves the last row into the hole. */
static void fill_hole(struct store *s, int kv)
{
    const int hole = s->hole[kv], last = s->rows[kv] - 1;
    int32_t *row;

    if (hole < 0)
        return;
    row = s->row + cb_store_at(s, kv, 0);
    move_row(s, kv, last, hole);
    for (int i = 0; i < s->n[kv]; i++)
        row[i] = row[i] == last ? hole : row[i];
    s->hole[kv] = -1;
    cb_store_unpack(s, last, s->rows[kv]);
    shrink(s, kv, last);
}

/* Rows from[i] -> i, along the cycles of the permutation */
static void sort_rows(struct store *s, int kv, int32_t *from, int n)
{
    _Alignas(64) uint8_t first[2][MOST_ROW];

    for (int i = 0; i < n; i++) {
        int to = i;
        if (from[i] == i)
            continue;
        for (int v = 0; v < cb_store_sides(s); v++)
            take_row(s, kv, v, i, first[v]);
        while (from[to] != i) {
            const int next = from[to];
            move_row(s, kv, next, to);
            from[to] = to;
            to = next;
        }
        for (int v = 0; v < cb_store_sides(s); v++)
            put_row(s, kv, v, to, first[v]);
        from[to] = to;
    }
}

static void pack_head(struct store *s, int kv)
{
    fill_hole(s, kv);
    if (!s->mixed[kv])
        return;
    cb_store_unpack(s, 0, s->prepacked);
    sort_rows(s, kv, s->row + cb_store_at(s, kv, 0), s->n[kv]);
    s->mixed[kv] = 0;
}

void cb_store_sort(struct store *s)
{
    for (int h = 0; h < s->n_kv; h++)
        pack_head(s, h);
}

static int any_hole(const struct store *s)
{
    int any = 0;
    for (int h = 0; h < s->n_kv; h++)
        any |= s->hole[h] >= 0;
    return any;
}

/* Puts the first new token into the hole. */
static void fill_with(struct store *s, struct device *d, int kv, const float **x, int stride)
{
    for (int v = 0; v < cb_store_sides(s); v++) {
        write_row(s, d, kv, v, s->hole[kv], x[v]);
        x[v] += stride;
    }
    s->hole[kv] = -1;
}

/* Tokens of one head -> rows from `row` on */
static void encode(struct store *s, struct device *d, int kv, const float *const *x, int stride,
                   int n, int row)
{
    for (int v = 0; v < cb_store_sides(s) && n > 0; v++)
        d->ops->kv_encode(d, type_of(s, v), x[v], n, stride, s->hd, cb_store_row(s, kv, v, row));
}

int cb_store_append(struct store *s, struct device *d, const float *k, const float *v, int stride,
                    int n, int pos0)
{
    if (!any_hole(s)) /* with a hole, only a row or two are new */
        cb_store_touch(s, d->par, s->rows, n);
    for (int h = 0; h < s->n_kv; h++) {
        const float *x[2] = { k + h * s->hd, v + h * s->hd };
        const int slot = s->n[h], hole = s->hole[h], in_hole = hole >= 0 && n > 0;
        for (int i = 0; s->pos && i < n; i++)
            s->pos[cb_store_at(s, h, slot + i)] = pos0 + i;
        for (int i = 0; s->mixed[h] && i < n; i++)
            s->row[cb_store_at(s, h, slot + i)] = i < in_hole ? hole : s->rows[h] + i - in_hole;
        for (int c = 0; c < s->n_col; c++)
            memset(cb_store_col(s, h, c) + slot, 0, (size_t)n * sizeof(float));
        if (in_hole)
            fill_with(s, d, h, x, stride);
        encode(s, d, h, x, stride, n - in_hole, s->rows[h]);
        s->n[h] += n;
        s->rows[h] += n - in_hole;
    }
    return CB_OK;
}

/* ---- dropping ---- */

/* Positions stop being slot numbers once a token has been dropped. */
int cb_store_list_positions(struct store *s)
{
    if (s->pos)
        return CB_OK;
    TRY(cb_pages_reserve(cb_store_list_bytes(s), &s->pos));
    for (int h = 0; h < s->n_kv; h++)
        for (int i = 0; i < s->n[h]; i++)
            s->pos[cb_store_at(s, h, i)] = i;
    return CB_OK;
}

int cb_store_set_pos(struct store *s, const int32_t *pos, int n)
{
    TRY(cb_store_list_positions(s));
    for (int h = 0; h < s->n_kv; h++)
        memcpy(s->pos + cb_store_at(s, h, s->n[h] - n), pos, (size_t)n * sizeof *pos);
    s->dropped_at = pos[n - 1] + 1 > s->dropped_at ? pos[n - 1] + 1 : s->dropped_at;
    return CB_OK;
}

static int need_row(struct store *s, int kv)
{
    if (!s->row)
        TRY(cb_pages_reserve(cb_store_list_bytes(s), &s->row));
    for (int i = 0; !s->mixed[kv] && i < s->n[kv]; i++)
        s->row[cb_store_at(s, kv, i)] = i;
    s->mixed[kv] = 1;
    return CB_OK;
}

/* May slots be mixed? Only heads of many slots are worth the list `row`. */
static int may_mix(const struct store *s, int kv, int n)
{
    return !s->kivi && n >= CB_STORE_MIX && s->gap_hi[kv] == s->gap_lo[kv];
}

/* Removes the entry of a dropped slot from a list; n entries remain. */
static void close_up(void *list, size_t size, int slot, int n)
{
    uint8_t *at = (uint8_t *)list + (size_t)slot * size;
    memmove(at, at + size, (size_t)(n - slot) * size);
}

static void note_drop(struct store *s, int kv)
{
    const int at = cb_store_pos(s, kv, s->n[kv] - 1) + 1;

    s->dropped_at = at > s->dropped_at ? at : s->dropped_at;
}

int cb_store_drop(struct store *s, int kv, int slot)
{
    const int n = s->n[kv] - 1, mix = may_mix(s, kv, n);

    assert(!s->kivi);
    note_drop(s, kv);
    if (!mix || !s->any_order)
        cb_store_unpack(s, 0, s->prepacked);
    TRY(cb_store_list_positions(s));
    if (mix) {
        TRY(need_row(s, kv));
        fill_hole(s, kv);
        s->hole[kv] = row_of(s, kv, slot);
        close_up(s->row + cb_store_at(s, kv, 0), sizeof *s->row, slot, n);
    } else {
        pack_head(s, kv);
        for (int v = 0; v < cb_store_sides(s); v++) {
            close_up(cb_store_row(s, kv, v, 0), row_bytes(s, v), slot, n);
            cb_store_wrote(s, cb_store_row(s, kv, v, slot), row_bytes(s, v) * (size_t)(n - slot));
        }
        shrink(s, kv, n);
    }
    close_up(s->pos + cb_store_at(s, kv, 0), sizeof *s->pos, slot, n);
    for (int c = 0; c < s->n_col; c++)
        close_up(cb_store_col(s, kv, c), sizeof *s->col, slot, n);
    s->gap_lo[kv] -= slot < s->gap_lo[kv];
    s->gap_hi[kv] -= slot < s->gap_hi[kv];
    s->n[kv] = n;
    if (!mix)
        cb_store_release_gap(s, kv, 0);
    return CB_OK;
}

/* Drops all slots but keep[n], one at a time */
static int drop_others(struct store *s, int kv, const int *keep, int n)
{
    for (int i = s->n[kv] - 1, k = n - 1; i >= 0; i--)
        if (k >= 0 && keep[k] == i)
            k--;
        else
            TRY(cb_store_drop(s, kv, i));
    return CB_OK;
}

/* Moves rows from[n] (ascending) of one head to rows 0.., adjacent rows in one piece. */
static void move_rows(struct store *s, int kv, const int *from, int n)
{
    for (int i = 0, run; i < n; i += run) {
        for (run = 1; i + run < n && from[i + run] == from[i] + run;)
            run++;
        for (int v = 0; v < cb_store_sides(s) && from[i] != i; v++) {
            memmove(cb_store_row(s, kv, v, i), cb_store_row(s, kv, v, from[i]),
                    row_bytes(s, v) * (size_t)run);
            cb_store_wrote(s, cb_store_row(s, kv, v, i), row_bytes(s, v) * (size_t)run);
        }
    }
}

/* Moves the lists beside keys and values: positions, columns */
static void move_lists(struct store *s, int kv, const int *keep, int n)
{
    int i = 0;

    while (i < n && keep[i] == i)
        i++;
    for (int j = i; j < n; j++)
        s->pos[cb_store_at(s, kv, j)] = s->pos[cb_store_at(s, kv, keep[j])];
    for (int c = 0; c < s->n_col; c++)
        for (int j = i; j < n; j++)
            cb_store_col(s, kv, c)[j] = cb_store_col(s, kv, c)[keep[j]];
}

/* Call before slots move: the gap in the numbers of the kept slots. */
static void move_gap(struct store *s, int kv, const int *keep, int n)
{
    int lo = 0, hi = 0;

    for (int i = 0; i < n; i++) {
        lo += keep[i] < s->gap_lo[kv];
        hi += keep[i] < s->gap_hi[kv];
    }
    s->gap_lo[kv] = lo;
    s->gap_hi[kv] = hi;
}

int cb_store_keep(struct store *s, int kv, const int *keep, int n)
{
    const int gone = s->n[kv] - n;

    if (!gone) /* keep is ascending and distinct: all stay */
        return CB_OK;
    if (gone <= n / CB_STORE_MIX && may_mix(s, kv, n))
        return drop_others(s, kv, keep, n);
    note_drop(s, kv);
    cb_store_unpack(s, 0, s->prepacked);
    TRY(cb_store_list_positions(s));
    pack_head(s, kv);
    move_lists(s, kv, keep, n);
    move_gap(s, kv, keep, n);
    if (s->kivi)
        TRY(cb_kivi_keep(s, kv, keep, n));
    else
        move_rows(s, kv, keep, n);
    shrink(s, kv, n);
    if (!s->kivi)
        cb_store_release_gap(s, kv, 0);
    s->n[kv] = n;
    return CB_OK;
}

int cb_store_deal_out(struct store *s, int kv, const int *keep, int n)
{
    if (s->n[kv] == n)
        return CB_OK;
    assert(!s->mixed[kv] && !s->kivi && s->gap_hi[kv] == s->gap_lo[kv]);
    TRY(cb_store_list_positions(s));
    move_lists(s, kv, keep, n);
    move_rows(s, kv, keep, n);
    shrink(s, kv, n);
    s->n[kv] = n;
    return CB_OK;
}

static void forget_list(const struct store *s, int32_t **list)
{
    cb_pages_release(*list, cb_store_list_bytes(s));
    *list = NULL;
}

void cb_store_forget_positions(struct store *s)
{
    forget_list(s, &s->pos);
}

/* Number of a head's slots at positions below n; positions ascend */
static int slots_below(const struct store *s, int kv, int n)
{
    int lo = 0, hi = s->n[kv];

    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        if (cb_store_pos(s, kv, mid) < n)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Has any head a slot at position n or later? */
static int any_from(const struct store *s, int n)
{
    int any = 0;

    for (int h = 0; h < s->n_kv; h++)
        any |= slots_below(s, h, n) < s->n[h];
    return any;
}

static void cut_head(struct store *s, int kv, int n)
{
    if (s->n[kv] <= n)
        return;
    s->n[kv] = n;
    cb_planes_cut(s, kv, n);
    if (s->kivi)
        cb_kivi_cut(s, kv, n);
    s->gap_hi[kv] = n < s->gap_hi[kv] ? n : s->gap_hi[kv];
    s->gap_lo[kv] = n < s->gap_lo[kv] ? n : s->gap_lo[kv];
    shrink(s, kv, n);
}

static void forget_merged(struct store *s)
{
    s->merged = 0;
    for (int i = 0; s->later && i < 2 * s->n_kv; i++)
        s->retained[i] = 0;
}

void cb_store_cut(struct store *s, int n)
{
    int least = s->n[0], most = 0;

    assert(!n || n >= s->merged);
    if (n && !any_hole(s) && !any_from(s, n)) /* rows stay as they lie: sums are in their order */
        return;
    cb_store_sort(s);
    for (int h = 0; h < s->n_kv; h++) {
        const int left = slots_below(s, h, n);
        least = left < least ? left : least;
        most = left > most ? left : most;
    }
    cb_store_unpack(s, least, most);
    for (int h = 0; h < s->n_kv; h++)
        cut_head(s, h, slots_below(s, h, n));
    cb_store_sketch_cut(s, least); /* keys in planes are decoded with them */
    if (n == 0) {                  /* an empty store: slot i will hold position i again */
        forget_list(s, &s->pos);
        forget_list(s, &s->row);
        forget_merged(s);
        s->dropped_at = 0;
    }
}

/* ---- what lies in a slot ---- */

void cb_store_get_many(const struct store *s, struct device *d, int kv, int v, const int *slot,
                       int n, float *x)
{
    int32_t row[CB_STORE_MANY];
    int as_row = !s->kivi;

    assert(n <= CB_STORE_MANY);
    for (int i = 0; i < n; i++) {
        row[i] = row_of(s, kv, slot[i]);
        as_row &= row[i] >= s->prepacked;
    }
    if (as_row)
        d->ops->kv_decode(d, type_of(s, v), cb_store_row(s, kv, v, 0), row, n, s->hd, x);
    for (int i = 0; !as_row && i < n; i++)
        cb_store_get(s, d, kv, v, slot[i], x + (size_t)i * (size_t)s->hd);
}

void cb_store_get_range(const struct store *s, struct device *d, int kv, int v, int from, int n,
                        float *x)
{
    int slot[CB_STORE_MANY];

    for (int i = 0; i < n; i++)
        slot[i] = from + i;
    cb_store_get_many(s, d, kv, v, slot, n, x);
}

void cb_store_get(const struct store *s, struct device *d, int kv, int v, int slot, float *x)
{
    _Alignas(64) uint8_t row[MOST_ROW];

    if (cb_kivi_has(s, kv, v, slot)) {
        cb_kivi_read(s, kv, v, slot, x);
        return;
    }
    take_row(s, kv, v, row_of(s, kv, slot), row);
    d->ops->kv_decode(d, type_of(s, v), row, NULL, 1, s->hd, x);
}

void cb_store_set(struct store *s, struct device *d, int kv, int v, int slot, const float *x)
{
    if (cb_kivi_has(s, kv, v, slot))
        cb_kivi_set(s, kv, v, slot, x);
    else
        write_row(s, d, kv, v, row_of(s, kv, slot), x);
}
