/* SPDX-License-Identifier: MIT */
/* vec_ops.c - the small ops of the CPU device. The threads share the rows in pieces large enough to
 * be worth waking a thread. */
#include <math.h>

#include "cpu/kern.h"
#include "kern_vec.h"

enum { PIECE = 1 << 14 }; /* floats an item */

struct job {
    const struct kern_vec *k;
    int n_row, rows_a_piece;
    union {
        struct {
            const float *x, *w, *b;
            float *y, eps;
            int n, n_row, x_stride, y_stride;
        } norm;
        struct {
            enum rope_kind kind;
            float *x;
            const float *cs;
            int n_head, hd, stride, n_rot;
        } rope;
        struct {
            enum act_kind act;
            float *gate;
            const float *up;
            int n;
        } glu;
        struct {
            float *y;
            const float *x;
            float a, cap;
            size_t n;
        } add; /* and scale, where x is NULL */
        struct {
            float *out, *lse;
            const float *sink;
            int n_head, hd;
        } sink;
        struct {
            float *out, *lse;
            const float *out2, *lse2;
            int hd;
        } join;
        struct {
            enum kv_type t;
            const float *x;
            float *y;
            char *rows;
            const char *from;
            const int32_t *idx;
            int stride, hd;
        } kv;
    } u;
};

/* Item i has rows [*from, return value). */
static int piece(const struct job *job, int i, int *from)
{
    const int end = (i + 1) * job->rows_a_piece;

    *from = i * job->rows_a_piece;
    return end < job->n_row ? end : job->n_row;
}

static void deal(struct device *d, struct job *job, int n_row, int floats_a_row, par_fn fn)
{
    const int rows = PIECE / (floats_a_row > 0 ? floats_a_row : 1);

    job->k = cb_cpu_vec(d);
    job->n_row = n_row;
    job->rows_a_piece = rows > 0 ? rows : 1;
    cb_par_for(d->par, (n_row + job->rows_a_piece - 1) / job->rows_a_piece, fn, job);
}

static void norm_piece(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    int t, end = piece(job, i, &t);

    (void)thread;
    for (; t < end; t++)
        for (int r = 0; r < job->u.norm.n_row; r++)
            job->k->rmsnorm(job->u.norm.x + (int64_t)t * job->u.norm.x_stride + r * job->u.norm.n,
                            job->u.norm.w, job->u.norm.eps, job->u.norm.n,
                            job->u.norm.y + (int64_t)t * job->u.norm.y_stride + r * job->u.norm.n);
}

void cb_cpu_rmsnorm(struct device *d, const float *x, const float *w, float eps, int n, int n_row,
                    int n_tok, int x_stride, float *y, int y_stride)
{
    struct job job = { .u.norm = { x, w, NULL, y, eps, n, n_row, x_stride, y_stride } };
    deal(d, &job, n_tok, n * n_row, norm_piece);
}

static void layernorm_piece(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    int t, end = piece(job, i, &t);

    (void)thread;
    for (; t < end; t++)
        for (int r = 0; r < job->u.norm.n_row; r++)
            job->k->layernorm(job->u.norm.x + (int64_t)t * job->u.norm.x_stride + r * job->u.norm.n,
                              job->u.norm.w, job->u.norm.b, job->u.norm.eps, job->u.norm.n,
                              job->u.norm.y + (int64_t)t * job->u.norm.y_stride +
                                  r * job->u.norm.n);
}

void cb_cpu_layernorm(struct device *d, const float *x, const float *w, const float *b, float eps,
                      int n, int n_row, int n_tok, int x_stride, float *y, int y_stride)
{
    struct job job = { .u.norm = { x, w, b, y, eps, n, n_row, x_stride, y_stride } };
    deal(d, &job, n_tok, n * n_row, layernorm_piece);
}

static void rope_piece(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    int t, end = piece(job, i, &t);

    (void)thread;
    for (; t < end; t++)
        job->k->rope(job->u.rope.kind, job->u.rope.x + (int64_t)t * job->u.rope.stride,
                     job->u.rope.n_head, job->u.rope.hd, job->u.rope.n_rot,
                     job->u.rope.cs + (int64_t)t * job->u.rope.n_rot);
}

void cb_cpu_rope(struct device *d, enum rope_kind kind, float *x, int n_tok, int n_head, int hd,
                 int stride, int n_rot, const float *cs)
{
    struct job job = { .u.rope = { kind, x, cs, n_head, hd, stride, n_rot } };
    deal(d, &job, n_tok, n_head * n_rot, rope_piece);
}

static void glu_piece(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    int t;
    const int end = piece(job, i, &t);
    const size_t at = (size_t)t * (size_t)job->u.glu.n;

    (void)thread;
    job->k->glu(job->u.glu.act, job->u.glu.gate + at, job->u.glu.up ? job->u.glu.up + at : NULL,
                (size_t)(end - t) * (size_t)job->u.glu.n);
}

void cb_cpu_glu(struct device *d, enum act_kind act, float *gate, const float *up, int n, int n_tok)
{
    struct job job = { .u.glu = { act, gate, up, n } };
    deal(d, &job, n_tok, n, glu_piece);
}

static void add_piece(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    const size_t at = (size_t)i * PIECE, left = job->u.add.n - at;

    (void)thread;
    job->k->add(job->u.add.y + at, job->u.add.x + at, job->u.add.a, left < PIECE ? left : PIECE);
}

void cb_cpu_add(struct device *d, float *y, const float *x, float a, size_t n)
{
    struct job job = { .u.add = { y, x, a, 0, n } };
    deal(d, &job, (int)((n + PIECE - 1) / PIECE), PIECE, add_piece);
}

static void scale_piece(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    const size_t at = (size_t)i * PIECE, left = job->u.add.n - at;

    (void)thread;
    job->k->scale(job->u.add.y + at, job->u.add.a, job->u.add.cap, left < PIECE ? left : PIECE);
}

void cb_cpu_scale(struct device *d, float *x, float a, float cap, size_t n)
{
    struct job job = { .u.add = { x, NULL, a, cap, n } };
    deal(d, &job, (int)((n + PIECE - 1) / PIECE), PIECE, scale_piece);
}

static void join_row(const struct job *job, int r)
{
    float *out = job->u.join.out + (int64_t)r * job->u.join.hd, *lse = job->u.join.lse + r;
    const float *out2 = job->u.join.out2 + (int64_t)r * job->u.join.hd;
    const float lse2 = job->u.join.lse2[r], m = *lse > lse2 ? *lse : lse2;
    float a, b;

    if (m == -INFINITY)
        return;
    a = expf(*lse - m);
    b = expf(lse2 - m);
    *lse = m + logf(a + b);
    job->k->mix(out, a / (a + b), out2, b / (a + b), job->u.join.hd);
}

static void join_piece(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    int r, end = piece(job, i, &r);

    (void)thread;
    for (; r < end; r++)
        join_row(job, r);
}

void cb_cpu_join(struct device *d, float *out, float *lse, const float *out2, const float *lse2,
                 int n_row, int hd)
{
    struct job job = { .u.join = { out, lse, out2, lse2, hd } };
    deal(d, &job, n_row, hd, join_piece);
}

static void sink_row(const struct job *job, int r)
{
    const float x = job->u.sink.sink[r % job->u.sink.n_head];
    float *lse = job->u.sink.lse + r;
    const float m = *lse > x ? *lse : x, own = expf(*lse - m), all = own + expf(x - m);

    *lse = m + logf(all);
    job->k->scale(job->u.sink.out + (int64_t)r * job->u.sink.hd, own / all, 0,
                  (size_t)job->u.sink.hd);
}

static void sink_piece(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    int r, end = piece(job, i, &r);

    (void)thread;
    for (; r < end; r++)
        sink_row(job, r);
}

void cb_cpu_sink(struct device *d, float *out, float *lse, const float *sink, int n_tok, int n_head,
                 int hd)
{
    struct job job = { .u.sink = { out, lse, sink, n_head, hd } };
    deal(d, &job, n_tok * n_head, hd, sink_piece);
}

static void encode_piece(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    const size_t row = cb_kv_row_bytes(job->u.kv.t, job->u.kv.hd);
    int j, end = piece(job, i, &j);

    (void)thread;
    for (; j < end; j++)
        job->k->encode(job->u.kv.t, job->u.kv.x + (int64_t)j * job->u.kv.stride, job->u.kv.hd,
                       job->u.kv.rows + (size_t)j * row);
}

void cb_cpu_kv_encode(struct device *d, enum kv_type t, const float *x, int n, int stride, int hd,
                      void *rows)
{
    struct job job = { .u.kv = { .t = t, .x = x, .rows = rows, .stride = stride, .hd = hd } };
    deal(d, &job, n, hd, encode_piece);
}

static void decode_piece(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    const size_t row = cb_kv_row_bytes(job->u.kv.t, job->u.kv.hd);
    int j, end = piece(job, i, &j);

    (void)thread;
    for (; j < end; j++) {
        const size_t slot = job->u.kv.idx ? (size_t)job->u.kv.idx[j] : (size_t)j;
        job->k->decode(job->u.kv.t, job->u.kv.from + slot * row, job->u.kv.hd,
                       job->u.kv.y + (int64_t)j * job->u.kv.hd);
    }
}

void cb_cpu_kv_decode(struct device *d, enum kv_type t, const void *rows, const int32_t *idx, int n,
                      int hd, float *y)
{
    struct job job = { .u.kv = { .t = t, .from = rows, .idx = idx, .hd = hd, .y = y } };
    deal(d, &job, n, hd, decode_piece);
}
