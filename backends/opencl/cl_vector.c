/* SPDX-License-Identifier: MIT */
/* cl_vector.c - the small ops of an OpenCL device: norms, rotation, gates, joins, stored forms,
 * searches. */
#include "cl.h"
#include "cl_mirror.h"

enum { NORM_ITEMS = 64, JOIN_ITEMS = 32, SELECT_ITEMS = 64 };

static struct cl_program *vector_program(struct cl *c)
{
    return cb_cl_program(c, CL_VECTOR, "");
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

void cb_cl_rmsnorm(struct device *d, const float *x, const float *w, float eps, int n, int n_row,
                   int n_tok, int x_stride, float *y, int y_stride)
{
    struct cl *c = cb_cl_of(d);
    const int64_t row = (int64_t)n * n_row;
    const size_t groups[3] = { (size_t)n_row, (size_t)n_tok, 1 };
    float *to, *from;

    if (n_tok < 1)
        return;
    to = y_stride == row ? cb_cl_out(c, y, floats(span(n_tok, y_stride, row)))
                         : cb_cl_inout(c, y, floats(span(n_tok, y_stride, row)));
    from = cb_cl_in(c, x, floats(span(n_tok, x_stride, row)));
    const struct cl_arg arg[] = { CL_P(from),     CL_P(cb_cl_in(c, w, floats(n))),
                                  CL_F(eps),      CL_I(n),
                                  CL_I(x_stride), CL_P(to),
                                  CL_I(y_stride) };
    cb_cl_run(c, vector_program(c), "rmsnorm", groups, NORM_ITEMS, arg, 7, NULL);
    cb_cl_done(c);
}

void cb_cl_rope(struct device *d, enum rope_kind kind, float *x, int n_tok, int n_head, int hd,
                int stride, int n_rot, const float *cs)
{
    struct cl *c = cb_cl_of(d);
    const int64_t n = (int64_t)n_tok * n_head * (n_rot / 2);
    float *on;

    if (n < 1)
        return;
    on = cb_cl_inout(c, x, floats(span(n_tok, stride, (int64_t)n_head * hd)));
    const struct cl_arg arg[] = { CL_P(on),
                                  CL_I(n_head),
                                  CL_I(hd),
                                  CL_I(stride),
                                  CL_I(n_rot),
                                  CL_I(kind == ROPE_HALF),
                                  CL_P(cb_cl_in(c, cs, floats((int64_t)n_tok * n_rot))),
                                  CL_L(n) };
    cb_cl_run_each(c, vector_program(c), "rope", n, arg, 8);
    cb_cl_done(c);
}

void cb_cl_glu(struct device *d, enum act_kind act, float *gate, const float *up, int n, int n_tok)
{
    struct cl *c = cb_cl_of(d);
    const int64_t all = (int64_t)n * n_tok;
    float *on;

    if (all < 1)
        return;
    on = cb_cl_inout(c, gate, floats(all));
    const struct cl_arg arg[] = { CL_P(on), CL_P(cb_cl_in(c, up, floats(all))), CL_I((int)act),
                                  CL_L(all) };
    cb_cl_run_each(c, vector_program(c), "glu", all, arg, 4);
    cb_cl_done(c);
}

void cb_cl_add(struct device *d, float *y, const float *x, float a, size_t n)
{
    struct cl *c = cb_cl_of(d);
    float *on;

    if (n < 1)
        return;
    on = cb_cl_inout(c, y, n * sizeof *y);
    const struct cl_arg arg[] = { CL_P(on), CL_P(cb_cl_in(c, x, n * sizeof *x)), CL_F(a), CL_L(n) };
    cb_cl_run_each(c, vector_program(c), "add", (int64_t)n, arg, 4);
    cb_cl_done(c);
}

void cb_cl_scale(struct device *d, float *x, float a, float cap, size_t n)
{
    struct cl *c = cb_cl_of(d);

    if (n < 1)
        return;
    const struct cl_arg arg[] = { CL_P(cb_cl_inout(c, x, n * sizeof *x)), CL_F(a), CL_F(cap),
                                  CL_L(n) };
    cb_cl_run_each(c, vector_program(c), "scale", (int64_t)n, arg, 4);
    cb_cl_done(c);
}

void cb_cl_sink(struct device *d, float *out, float *lse, const float *sink, int n_tok, int n_head,
                int hd)
{
    struct cl *c = cb_cl_of(d);
    const int64_t rows = (int64_t)n_tok * n_head;
    const size_t groups[3] = { (size_t)rows, 1, 1 };

    if (rows < 1)
        return;
    const struct cl_arg arg[] = { CL_P(cb_cl_inout(c, out, floats(rows * hd))),
                                  CL_P(cb_cl_inout(c, lse, floats(rows))),
                                  CL_P(cb_cl_in(c, sink, floats(n_head))), CL_I(n_head), CL_I(hd) };
    cb_cl_run(c, vector_program(c), "sink", groups, JOIN_ITEMS, arg, 5, NULL);
    cb_cl_done(c);
}

void cb_cl_layernorm(struct device *d, const float *x, const float *w, const float *b, float eps,
                     int n, int n_row, int n_tok, int x_stride, float *y, int y_stride)
{
    struct cl *c = cb_cl_of(d);
    const int64_t row = (int64_t)n * n_row;
    const size_t groups[3] = { (size_t)n_row, (size_t)n_tok, 1 };
    float *to, *from;

    if (n_tok < 1)
        return;
    to = y_stride == row ? cb_cl_out(c, y, floats(span(n_tok, y_stride, row)))
                         : cb_cl_inout(c, y, floats(span(n_tok, y_stride, row)));
    from = cb_cl_in(c, x, floats(span(n_tok, x_stride, row)));
    const struct cl_arg arg[] = { CL_P(from),
                                  CL_P(cb_cl_in(c, w, floats(n))),
                                  CL_P(cb_cl_in(c, b, floats(n))),
                                  CL_F(eps),
                                  CL_I(n),
                                  CL_I(x_stride),
                                  CL_P(to),
                                  CL_I(y_stride) };
    cb_cl_run(c, vector_program(c), "layernorm", groups, NORM_ITEMS, arg, 8, NULL);
    cb_cl_done(c);
}

void cb_cl_join_parts(struct cl *c, float *out, float *lse, const float *out2, const float *lse2,
                      int n_part, int64_t out_stride, int64_t lse_stride, int n_row, int hd)
{
    const size_t groups[3] = { (size_t)n_row, 1, 1 };
    const struct cl_arg arg[] = { CL_P(out),    CL_P(lse),        CL_P(out2),       CL_P(lse2),
                                  CL_I(n_part), CL_L(out_stride), CL_L(lse_stride), CL_I(hd) };

    cb_cl_run(c, vector_program(c), "join", groups, JOIN_ITEMS, arg, 8, NULL);
}

void cb_cl_join(struct device *d, float *out, float *lse, const float *out2, const float *lse2,
                int n_row, int hd)
{
    struct cl *c = cb_cl_of(d);
    float *o, *l, *o2, *l2;

    if (n_row < 1)
        return;
    o = cb_cl_inout(c, out, floats((int64_t)n_row * hd));
    l = cb_cl_inout(c, lse, floats(n_row));
    o2 = cb_cl_in(c, out2, floats((int64_t)n_row * hd));
    l2 = cb_cl_in(c, lse2, floats(n_row));
    cb_cl_join_parts(c, o, l, o2, l2, 1, 0, 0, n_row, hd);
    cb_cl_done(c);
}

/* ---- stored forms ---- */

/* Writes through: to the bank when the queue gets there, to the mirror where it holds the rows. */
void cb_cl_kv_encode(struct device *d, enum kv_type t, const float *x, int n, int stride, int hd,
                     void *rows)
{
    struct cl *c = cb_cl_of(d);
    const size_t row = cb_kv_row_bytes(t, hd), bytes = row * (size_t)n;
    const int64_t all = (int64_t)n * (t == KV_Q8_0 ? hd / 32 : hd);
    struct cl_area *a;
    void *on;

    if (all < 1)
        return;
    a = cb_cl_area(c, rows);
    on = a ? cb_cl_room_for(c, bytes) : cb_cl_out(c, rows, bytes);
    const struct cl_arg arg[] = { CL_I((int)t), CL_P(cb_cl_in(c, x, floats(span(n, stride, hd)))),
                                  CL_I(stride), CL_I(hd),
                                  CL_P(on),     CL_L(all) };
    cb_cl_run_each(c, vector_program(c), "encode", all, arg, 6);
    if (a && on && !c->status) {
        const size_t at = (size_t)((const uint8_t *)rows - a->rows);
        cb_cl_mirror_begin(c);
        if (at % row == 0 && a->row_bytes == row)
            cb_cl_mirror_stored(c, a, on, (int)(at / row), n, n > 1 ? CL_MUST : CL_MAY);
        else
            cb_cl_wrote(c, rows, bytes);
        cb_cl_fetch(c, rows, on, bytes);
    }
    cb_cl_done(c);
}

void cb_cl_kv_decode(struct device *d, enum kv_type t, const void *rows, const int32_t *idx, int n,
                     int hd, float *y)
{
    struct cl *c = cb_cl_of(d);
    const int64_t all = (int64_t)n * hd;
    int last = n - 1;
    float *on;

    if (all < 1)
        return;
    if (cb_cl_area(c, rows)) { /* few rows of the bank, for the host */
        cb_cl_finish(c);
        c->host.ops->kv_decode(&c->host, t, rows, idx, n, hd, y);
        return;
    }
    for (int i = 0; idx && i < n; i++)
        last = idx[i] > last ? idx[i] : last;
    on = cb_cl_out(c, y, floats(all));
    const struct cl_arg arg[] = { CL_I((int)t),
                                  CL_P(cb_cl_in(c, rows,
                                                cb_kv_row_bytes(t, hd) * (size_t)(last + 1))),
                                  CL_P(cb_cl_in(c, idx, (size_t)n * sizeof *idx)),
                                  CL_I(hd),
                                  CL_P(on),
                                  CL_L(all) };
    cb_cl_run_each(c, vector_program(c), "decode", all, arg, 6);
    cb_cl_done(c);
}

/* ---- searches ---- */

void cb_cl_nearest(struct device *d, const float *x, int n, const float *y, int m, int hd,
                   int32_t *idx, float *dot)
{
    struct cl *c = cb_cl_of(d);
    const size_t groups[3] = { (size_t)n, 1, 1 };
    void *i, *o;

    if (n < 1)
        return;
    i = cb_cl_out(c, idx, (size_t)n * sizeof *idx);
    o = cb_cl_out(c, dot, floats(n));
    const struct cl_arg arg[] = { CL_P(cb_cl_in(c, x, floats((int64_t)n * hd))),
                                  CL_P(cb_cl_in(c, y, floats((int64_t)m * hd))),
                                  CL_I(m),
                                  CL_I(hd),
                                  CL_P(i),
                                  CL_P(o) };
    cb_cl_run(c, cb_cl_program(c, CL_SELECT, ""), "nearest", groups, SELECT_ITEMS, arg, 6, NULL);
    cb_cl_done(c);
}

void cb_cl_best_head(struct device *d, const float *logit, int stride, int n_head, int n,
                     int normed, float *best)
{
    struct cl *c = cb_cl_of(d);
    struct cl_program *p = cb_cl_program(c, CL_SELECT, "");
    const size_t groups[3] = { (size_t)n_head, 1, 1 };
    const float *x;
    void *lse, *to;

    if (n < 1)
        return;
    x = cb_cl_in(c, logit, floats(span(n_head, stride, n)));
    lse = cb_cl_room_for(c, floats(2 * (int64_t)n_head));
    to = cb_cl_out(c, best, floats(n));
    if (normed) {
        const struct cl_arg arg[] = { CL_P(x), CL_I(stride), CL_I(n), CL_P(lse) };
        cb_cl_run(c, p, "head_lse", groups, SELECT_ITEMS, arg, 4, NULL);
    }
    const struct cl_arg arg[] = { CL_P(x),   CL_I(stride), CL_I(n_head), CL_I(normed),
                                  CL_P(lse), CL_P(to),     CL_L(n) };
    cb_cl_run_each(c, p, "best_head", n, arg, 7);
    cb_cl_done(c);
}

void cb_cl_topk(struct device *d, const float *x, int n, int k, int32_t *idx)
{
    struct cl *c = cb_cl_of(d);
    static const size_t one[3] = { 1, 1, 1 };
    void *to;

    if (k < 1)
        return;
    to = cb_cl_out(c, idx, (size_t)k * sizeof *idx);
    const struct cl_arg arg[] = { CL_P(cb_cl_in(c, x, floats(n))), CL_I(n), CL_I(k), CL_P(to) };
    cb_cl_run(c, cb_cl_program(c, CL_SELECT, ""), "topk", one, SELECT_ITEMS, arg, 4, NULL);
    cb_cl_done(c);
}
