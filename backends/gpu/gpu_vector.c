/* SPDX-License-Identifier: MIT */
/* gpu_vector.c - the small ops of an accelerator: norms, rotation, gates, joins, stored forms,
 * searches. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/linux_flags.h"
#include "gpu.h"
#include "gpu_cache.h"
#include "gpu_split.h"

enum { MUCH = 32 << 10 }; /* bytes of rows */
enum { NORM_ITEMS = 256, JOIN_ITEMS = 256, SINK_ITEMS = 32, SELECT_ITEMS = 64 };

static struct gpu_program *select_program(struct gpu *g)
{
    return cb_gpu_program(g, GPU_SELECT, (struct gpu_options){ 0 });
}

static struct gpu_program *vector_program(struct gpu *g)
{
    return cb_gpu_program(g, GPU_VECTOR, (struct gpu_options){ 0 });
}

static size_t floats(int64_t n)
{
    return (size_t)n * sizeof(float);
}

/* Floats from a row's beginning to the last row's end */
static int64_t span(int n_tok, int stride, int64_t row)
{
    return (int64_t)(n_tok - 1) * stride + row;
}

/* 1: kernels that leave sums of two halves beside their results can read these rows of n floats. */
static int splits(const struct gpu *g, int n, const float *on, int stride)
{
    return g->driver->has_mma && n % 32 == 0 && stride % 4 == 0 && (uintptr_t)on % 16 == 0;
}

void cb_gpu_rmsnorm(struct device *d, const float *x, const float *w, float eps, int n, int n_row,
                    int n_tok, int x_stride, float *y, int y_stride)
{
    struct gpu *g = cb_gpu_of(d);
    const int64_t row = (int64_t)n * n_row;
    const size_t groups[3] = { (size_t)n_tok, (size_t)n_row, 1 };
    struct gpu_split beside = { 0 };
    float *to, *from;
    int split;

    if (n_tok < 1)
        return;
    to = y_stride == row ? cb_gpu_out(g, y, floats(span(n_tok, y_stride, row)))
                         : cb_gpu_inout(g, y, floats(span(n_tok, y_stride, row)));
    from = cb_gpu_in(g, x, floats(span(n_tok, x_stride, row)));
    w = cb_gpu_constant(g, w, floats(n));
    split = n_row == 1 && splits(g, n, from, x_stride) && splits(g, n, to, y_stride) &&
            splits(g, n, w, 0);
    if (split && y_stride == n)
        cb_gpu_split_beside(g, to, n, n_tok, &beside);
    const struct gpu_arg arg[] = { GPU_P(from),     GPU_P(w),         GPU_F(eps),
                                   GPU_I(n),        GPU_I(x_stride),  GPU_P(to),
                                   GPU_I(y_stride), GPU_P(beside.to), GPU_P(beside.scale) };
    if (split)
        cb_gpu_run(g, vector_program(g), "rmsnorm_split", groups, NORM_ITEMS, arg, 9, NULL);
    else
        cb_gpu_run(g, vector_program(g), "rmsnorm", groups, NORM_ITEMS, arg, 7, NULL);
    cb_gpu_done(g);
}

void cb_gpu_rope(struct device *d, enum rope_kind kind, float *x, int n_tok, int n_head, int hd,
                 int stride, int n_rot, const float *cs)
{
    struct gpu *g = cb_gpu_of(d);
    const int64_t n = (int64_t)n_tok * n_head * (n_rot / 2);
    float *on;

    if (n < 1)
        return;
    on = cb_gpu_inout(g, x, floats(span(n_tok, stride, (int64_t)n_head * hd)));
    const struct gpu_arg arg[] = { GPU_P(on),
                                   GPU_I(n_head),
                                   GPU_I(hd),
                                   GPU_I(stride),
                                   GPU_I(n_rot),
                                   GPU_I(kind == ROPE_HALF),
                                   GPU_P(cb_gpu_constant(g, cs, floats((int64_t)n_tok * n_rot))),
                                   GPU_L(n) };
    cb_gpu_run_each(g, vector_program(g), "rope", n, arg, 8);
    cb_gpu_done(g);
}

void cb_gpu_glu(struct device *d, enum act_kind act, float *gate, const float *up, int n, int n_tok)
{
    struct gpu *g = cb_gpu_of(d);
    const int64_t all = (int64_t)n * n_tok;
    const size_t groups[3] = { (size_t)n_tok, 1, 1 };
    struct gpu_split beside;
    float *on;

    if (all < 1)
        return;
    on = cb_gpu_inout(g, gate, floats(all));
    up = cb_gpu_in(g, up, floats(all));
    if (up && splits(g, n, on, 0) && splits(g, n, up, 0) &&
        cb_gpu_split_beside(g, on, n, n_tok, &beside)) {
        const struct gpu_arg arg[] = { GPU_P(on), GPU_P(up),        GPU_I((int)act),
                                       GPU_I(n),  GPU_P(beside.to), GPU_P(beside.scale) };
        cb_gpu_run(g, vector_program(g), "split", groups, SPLIT_ITEMS, arg, 6, NULL);
    } else {
        const struct gpu_arg arg[] = { GPU_P(on), GPU_P(up), GPU_I((int)act), GPU_L(all) };
        if (splits(g, 0, on, 0) && splits(g, 0, up, 0))
            cb_gpu_run_each(g, vector_program(g), "glu_four", (all + 3) / 4, arg, 4);
        else
            cb_gpu_run_each(g, vector_program(g), "glu", all, arg, 4);
    }
    cb_gpu_done(g);
}

void cb_gpu_add(struct device *d, float *y, const float *x, float a, size_t n)
{
    struct gpu *g = cb_gpu_of(d);
    float *on;

    if (n < 1)
        return;
    on = cb_gpu_inout(g, y, n * sizeof *y);
    const struct gpu_arg arg[] = { GPU_P(on), GPU_P(cb_gpu_in(g, x, n * sizeof *x)), GPU_F(a),
                                   GPU_L(n) };
    cb_gpu_run_each(g, vector_program(g), "add", (int64_t)n, arg, 4);
    cb_gpu_done(g);
}

void cb_gpu_scale(struct device *d, float *x, float a, float cap, size_t n)
{
    struct gpu *g = cb_gpu_of(d);

    if (n < 1)
        return;
    const struct gpu_arg arg[] = { GPU_P(cb_gpu_inout(g, x, n * sizeof *x)), GPU_F(a), GPU_F(cap),
                                   GPU_L(n) };
    cb_gpu_run_each(g, vector_program(g), "scale", (int64_t)n, arg, 4);
    cb_gpu_done(g);
}

void cb_gpu_sink(struct device *d, float *out, float *lse, const float *sink, int n_tok, int n_head,
                 int hd)
{
    struct gpu *g = cb_gpu_of(d);
    const int64_t rows = (int64_t)n_tok * n_head;
    const size_t groups[3] = { (size_t)rows, 1, 1 };

    if (rows < 1)
        return;
    const struct gpu_arg arg[] = { GPU_P(cb_gpu_inout(g, out, floats(rows * hd))),
                                   GPU_P(cb_gpu_inout(g, lse, floats(rows))),
                                   GPU_P(cb_gpu_constant(g, sink, floats(n_head))), GPU_I(n_head),
                                   GPU_I(hd) };
    cb_gpu_run(g, vector_program(g), "sink", groups, SINK_ITEMS, arg, 5, NULL);
    cb_gpu_done(g);
}

void cb_gpu_layernorm(struct device *d, const float *x, const float *w, const float *b, float eps,
                      int n, int n_row, int n_tok, int x_stride, float *y, int y_stride)
{
    struct gpu *g = cb_gpu_of(d);
    const int64_t row = (int64_t)n * n_row;
    const size_t groups[3] = { (size_t)n_tok, (size_t)n_row, 1 };
    float *to, *from;

    if (n_tok < 1)
        return;
    to = y_stride == row ? cb_gpu_out(g, y, floats(span(n_tok, y_stride, row)))
                         : cb_gpu_inout(g, y, floats(span(n_tok, y_stride, row)));
    from = cb_gpu_in(g, x, floats(span(n_tok, x_stride, row)));
    const struct gpu_arg arg[] = { GPU_P(from),
                                   GPU_P(cb_gpu_constant(g, w, floats(n))),
                                   GPU_P(cb_gpu_constant(g, b, floats(n))),
                                   GPU_F(eps),
                                   GPU_I(n),
                                   GPU_I(x_stride),
                                   GPU_P(to),
                                   GPU_I(y_stride) };
    cb_gpu_run(g, vector_program(g), "layernorm", groups, NORM_ITEMS, arg, 8, NULL);
    cb_gpu_done(g);
}

void cb_gpu_join_parts(struct gpu *g, float *out, float *lse, const float *out2, const float *lse2,
                       int n_part, int64_t out_stride, int64_t lse_stride, int n_row, int hd)
{
    const size_t groups[3] = { (size_t)n_row, 1, 1 };
    const struct gpu_arg arg[] = { GPU_P(out),    GPU_P(lse),        GPU_P(out2),       GPU_P(lse2),
                                   GPU_I(n_part), GPU_L(out_stride), GPU_L(lse_stride), GPU_I(hd) };

    cb_gpu_run(g, vector_program(g), "join", groups, JOIN_ITEMS, arg, 8, NULL);
}

void cb_gpu_join(struct device *d, float *out, float *lse, const float *out2, const float *lse2,
                 int n_row, int hd)
{
    struct gpu *g = cb_gpu_of(d);
    float *o, *l, *o2, *l2;

    if (n_row < 1)
        return;
    o = cb_gpu_inout(g, out, floats((int64_t)n_row * hd));
    l = cb_gpu_inout(g, lse, floats(n_row));
    o2 = cb_gpu_in(g, out2, floats((int64_t)n_row * hd));
    l2 = cb_gpu_in(g, lse2, floats(n_row));
    cb_gpu_join_parts(g, o, l, o2, l2, 1, 0, 0, n_row, hd);
    cb_gpu_done(g);
}

/* ---- stored forms ---- */

/* The bank's pages become memory while the device computes, not when it is waited for. A system
 * that cannot do it does it later. */
static void populate(void *rows, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = ((uintptr_t)rows + page - 1) / page * page;
    const uintptr_t to = ((uintptr_t)rows + bytes) / page * page;

    if (to > from)
        (void)madvise((void *)from, to - from, MADV_POPULATE_WRITE);
}

/* Writes through: to the bank when the queue gets there, to the mirror where it holds the rows. */
void cb_gpu_kv_encode(struct device *d, enum kv_type t, const float *x, int n, int stride, int hd,
                      void *rows)
{
    struct gpu *g = cb_gpu_of(d);
    const size_t row = cb_kv_row_bytes(t, hd), bytes = row * (size_t)n;
    const int64_t all = (int64_t)n * (t == KV_Q8_0 ? hd / 32 : hd);
    struct gpu_area *a;
    int waits;
    void *on;

    if (all < 1)
        return;
    a = cb_gpu_area(g, rows);
    waits = a && cb_gpu_new_rows_fit(g, t, x, hd, n);
    on = a ? cb_gpu_room_for(g, bytes) : cb_gpu_out(g, rows, bytes);
    if (waits) {
        cb_gpu_new_rows(g, x, stride, on, row, n);
    } else {
        const struct gpu_arg arg[] = {
            GPU_I((int)t), GPU_P(cb_gpu_in(g, x, floats(span(n, stride, hd)))),
            GPU_I(stride), GPU_I(hd),
            GPU_P(on),     GPU_L(all)
        };
        cb_gpu_run_each(g, vector_program(g), "encode", all, arg, 6);
    }
    if (a && on && !g->status) {
        const size_t at = (size_t)((const uint8_t *)rows - a->rows);
        cb_gpu_mirror_begin(g);
        if (at % row == 0 && a->row_bytes == row) {
            cb_gpu_mirror_stored(g, a, on, (int)(at / row), n, n > 1 ? GPU_MUST : GPU_MAY);
            cb_gpu_chosen_stored(g, a, on, (int)(at / row), n);
            cb_gpu_cache_stored(g, a, on, (int)(at / row), n);
        } else {
            cb_gpu_wrote(g, rows, bytes);
            cb_gpu_chosen_wrote(g, rows, bytes);
            cb_gpu_cache_leave(g, rows);
        }
        a->stored = g->emptied;
        a->last = (int)(at / row) + n - 1;
        a->last_on = (const uint8_t *)on + row * (size_t)(n - 1);
        cb_gpu_fetch_rows(g, rows, on, bytes);
        g->traffic.kv_out_bytes += bytes;
        if (bytes >= MUCH)
            populate(rows, bytes);
    }
    cb_gpu_done(g);
}

/* Between two places of the host's memory it leaves the device alone. */
void cb_gpu_kv_decode(struct device *d, enum kv_type t, const void *rows, const int32_t *idx, int n,
                      int hd, float *y)
{
    struct gpu *g = cb_gpu_of(d);
    const int64_t all = (int64_t)n * hd;
    int last = n - 1;
    float *on;

    if (all < 1)
        return;
    if (!cb_gpu_is_on(g, rows) && !cb_gpu_is_on(g, y)) {
        cb_gpu_finish(g); /* rows that were stored last must be there */
        g->host.ops->kv_decode(&g->host, t, rows, idx, n, hd, y);
        return;
    }
    for (int i = 0; idx && i < n; i++)
        last = idx[i] > last ? idx[i] : last;
    on = cb_gpu_out(g, y, floats(all));
    const struct gpu_arg arg[] = { GPU_I((int)t),
                                   GPU_P(cb_gpu_in(g, rows,
                                                   cb_kv_row_bytes(t, hd) * (size_t)(last + 1))),
                                   GPU_P(cb_gpu_in(g, idx, (size_t)n * sizeof *idx)),
                                   GPU_I(hd),
                                   GPU_P(on),
                                   GPU_L(all) };
    cb_gpu_run_each(g, vector_program(g), "decode", all, arg, 6);
    cb_gpu_done(g);
}

/* ---- searches ---- */

void cb_gpu_nearest(struct device *d, const float *x, int n, const float *y, int m, int hd,
                    int32_t *idx, float *dot)
{
    struct gpu *g = cb_gpu_of(d);
    const size_t groups[3] = { (size_t)n, 1, 1 };
    void *i, *o;

    if (n < 1)
        return;
    i = cb_gpu_out(g, idx, (size_t)n * sizeof *idx);
    o = cb_gpu_out(g, dot, floats(n));
    const struct gpu_arg arg[] = { GPU_P(cb_gpu_in(g, x, floats((int64_t)n * hd))),
                                   GPU_P(cb_gpu_in(g, y, floats((int64_t)m * hd))),
                                   GPU_I(m),
                                   GPU_I(hd),
                                   GPU_P(i),
                                   GPU_P(o) };
    cb_gpu_run(g, select_program(g), "nearest", groups, SELECT_ITEMS, arg, 6, NULL);
    cb_gpu_done(g);
}

/* The CPU's: who asks has the numbers, and a group alone would go through them bit by bit. */
void cb_gpu_topk(struct device *d, const float *x, int n, int k, int32_t *idx)
{
    struct gpu *g = cb_gpu_of(d);
    const int on = cb_gpu_is_on(g, x);
    const float *from = on ? cb_gpu_to_host(g, x, floats(n)) : x;
    int32_t *to = cb_gpu_host_for(g, idx, (size_t)k * sizeof *idx);

    if (k > 0 && !g->status)
        g->host.ops->topk(&g->host, from, n, k, to);
    cb_gpu_from_host(g, idx, to, (size_t)k * sizeof *idx);
    if (on)
        free((void *)(uintptr_t)from);
}
