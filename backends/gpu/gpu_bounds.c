/* SPDX-License-Identifier: MIT */
/* gpu_bounds.c - bounds of the keys of pages, drawn on the device: they go to the bank and to the
 * mirror as new rows do, and nobody waits. The CPU draws those of rows that kernels cannot read,
 * and makes their mean. */
#include "device/sketch.h"
#include "gpu.h"
#include "gpu_index.h"
#include "gpu_map.h"
#include "gpu_mirror.h"

enum { ITEMS = 64 }; /* of a group */

/* Rows of keys, and where their bounds go */
struct pages {
    enum kv_type t;
    const uint8_t *rows;
    int n_page, page, hd;
    uint8_t *bounds;
};

static size_t n_rows(const struct pages *x)
{
    return (size_t)x->n_page * (size_t)x->page;
}

static size_t bounds_bytes(const struct pages *x)
{
    return (size_t)x->n_page * cb_bounds_bytes(x->hd);
}

/* The number of the row at p, if the area's rows have these bytes; else -1 */
static int row_of(const struct gpu_area *a, const void *p, size_t bytes)
{
    const size_t at = a ? (size_t)((const uint8_t *)p - a->rows) : 0;

    return a && a->row_bytes == bytes && at % bytes == 0 ? (int)(at / bytes) : -1;
}

/* Where kernels read a row: in the mirror, where it was just stored, or in the host's memory; 0:
 * nowhere */
static uint64_t row_at(const struct gpu *g, const struct gpu_area *a, int row)
{
    const uint8_t *host = a->rows + (size_t)row * a->row_bytes;

    if (cb_gpu_mirror_has(a, row))
        return a->at[row >> a->shift] + (size_t)(row & ((1 << a->shift) - 1)) * a->row_bytes;
    if (g->driver->reaches_all && a->stored == g->emptied && row == a->last)
        return (uintptr_t)a->last_on;
    return cb_gpu_map_has(a, row) && !cb_gpu_is_on_its_way(g, host, a->row_bytes) ? (uintptr_t)host
                                                                                  : 0;
}

/* Where kernels read rows first..first+n-1 -> row[n], and on the device. 0: nowhere, some of them
 */
static int find_rows(struct gpu *g, const struct gpu_area *a, int first, size_t n, uint64_t *row,
                     uint64_t *row_on)
{
    for (size_t i = 0; i < n; i++)
        if (!(row[i] = row_at(g, a, first + (int)i)))
            return 0;
    cb_gpu_send(g, row_on, row, n * sizeof *row);
    return 1;
}

/* 0: kernels cannot read all of the rows */
static int draw(struct gpu *g, const struct pages *x)
{
    struct gpu_area *keys = cb_gpu_area(g, x->rows), *to = cb_gpu_area(g, x->bounds);
    const int first = row_of(keys, x->rows, cb_kv_row_bytes(x->t, x->hd));
    const int at = row_of(to, x->bounds, cb_bounds_bytes(x->hd));
    const size_t n = n_rows(x), bytes = bounds_bytes(x);
    const int64_t all = (int64_t)x->n_page * x->hd;
    const size_t groups[3] = { (size_t)((all + ITEMS - 1) / ITEMS), 1, 1 };
    uint64_t *row_on;
    void *host, *on;

    if (g->stream_kv || first < 0 || at < 0)
        return 0;
    cb_gpu_stage_reserve(g, cb_gpu_aligned(n * sizeof *row_on) + cb_gpu_aligned(bytes));
    row_on = cb_gpu_room_beside(g, n * sizeof *row_on, &host);
    on = cb_gpu_room_for(g, bytes);
    if (!on)
        return 1; /* it has failed */
    cb_gpu_mirror_begin(g);
    if (!find_rows(g, keys, first, n, host, row_on))
        return 0;
    const struct gpu_arg arg[] = { GPU_I((int)x->t), GPU_I(x->hd), GPU_I(x->page),
                                   GPU_P(row_on),    GPU_P(on),    GPU_L(all) };
    cb_gpu_run(g, cb_gpu_program(g, GPU_VECTOR, (struct gpu_options){ 0 }), "draw_bounds", groups,
               ITEMS, arg, 6, cb_gpu_mirror_pieces(g));
    cb_gpu_mirror_stored(g, to, on, at, x->n_page, GPU_MAY);
    to->stored = g->emptied;
    cb_gpu_fetch_rows(g, x->bounds, on, bytes);
    g->traffic.kv_out_bytes += bytes;
    cb_gpu_done(g);
    return 1;
}

static void draw_on_host(struct gpu *g, const struct pages *x)
{
    cb_gpu_settle(g, x->rows, n_rows(x) * cb_kv_row_bytes(x->t, x->hd));
    cb_gpu_settle(g, x->bounds, bounds_bytes(x));
    if (!g->status)
        g->host.ops->bounds(&g->host, x->t, x->rows, x->n_page, x->page, x->hd, x->bounds);
    cb_gpu_wrote(g, x->bounds, bounds_bytes(x));
}

void cb_gpu_bounds(struct device *d, enum kv_type t, const void *rows, int n_page, int page, int hd,
                   void *bounds)
{
    struct gpu *g = cb_gpu_of(d);
    const struct pages x = { t, rows, n_page, page, hd, bounds };

    if (!g->status && n_page > 0 && !draw(g, &x))
        draw_on_host(g, &x);
}

/* The mirror gets what it lacks of the rows before `end` in the pages of rows from `first` on, if
 * the host has them, and the row that was stored last. */
static void bring(struct gpu *g, struct gpu_area *a, int first, int end)
{
    const int fresh = a->stored == g->emptied && a->last < end, home = fresh ? a->last : end;
    const int page = first >> a->shift, from = page << a->shift;

    if (home > from && cb_gpu_is_on_its_way(g, a->rows + (size_t)from * a->row_bytes,
                                            (size_t)(home - from) * a->row_bytes))
        return;
    for (int i = page; i << a->shift < home; i++) {
        g->locked = 1;
        cb_gpu_mirror_page(g, a, i, home, GPU_MAY);
    }
    if (fresh)
        cb_gpu_mirror_stored(g, a, a->last_on, a->last, 1, GPU_MAY);
}

static int make_mean(struct gpu *g, struct gpu_area *a, enum kv_type t, int first, int n, int hd,
                     float *mean)
{
    const size_t groups[3] = { (size_t)((hd + ITEMS - 1) / ITEMS), 1, 1 };
    uint64_t *on;
    void *host;

    cb_gpu_stage_reserve(g, cb_gpu_aligned((size_t)n * sizeof *on));
    on = cb_gpu_room_beside(g, (size_t)n * sizeof *on, &host);
    if (!on)
        return 1; /* it has failed */
    cb_gpu_mirror_begin(g);
    bring(g, a, first, first + n);
    if (!find_rows(g, a, first, (size_t)n, host, on))
        return 0;
    const struct gpu_arg arg[] = { GPU_I((int)t), GPU_I(n), GPU_P(on), GPU_P(mean), GPU_L(hd) };
    cb_gpu_run(g, cb_gpu_program(g, GPU_VECTOR, (struct gpu_options){ 0 }), "mean_rows", groups,
               ITEMS, arg, 5, cb_gpu_mirror_pieces(g));
    cb_gpu_done(g);
    return 1;
}

int cb_gpu_mean_rows(struct device *d, enum kv_type t, const void *rows, int n, int hd, float *mean)
{
    struct gpu *g = cb_gpu_of(d);
    struct gpu_area *a = cb_gpu_area(g, rows);
    const int first = row_of(a, rows, cb_kv_row_bytes(t, hd));
    int made;

    if (g->stream_kv || first < 0 || n < 1)
        return 0;
    made = make_mean(g, a, t, first, n, hd, mean);
    g->locked = 0;
    return made;
}
