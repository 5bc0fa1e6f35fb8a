/* SPDX-License-Identifier: MIT */
/* ref.c - the reference device: plain C, sums in double, the oracle of every other backend. It is
 * written to be read beside device.h; attention and scores are in ref_attn.c. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "ref_attn.h"
#include "ref_blocks.h"
#include "ref_recurrence.h"
#include "ref_rows.h"
#include "ref_sketch.h"

static int load(struct device *d, struct weight *w)
{
    (void)d;
    w->packed = NULL;
    w->packed_bytes = 0;
    return CB_OK;
}

static void unload(struct device *d, struct weight *w)
{
    (void)d;
    (void)w;
}

/* Each thread needs one unpacked row of the widest matrix. */
static int64_t reserve(struct device *d, int n_tok, int max_in, int max_out, int n_head, int hd,
                       int n_ctx)
{
    (void)n_tok, (void)max_out, (void)n_head, (void)hd, (void)n_ctx;
    TRY(cb_par_reserve(d->par, (size_t)max_in * sizeof(float)));
    return (int64_t)cb_par_scratch_bytes(d->par);
}

static const void *weight_row(const struct weight *w, int64_t i)
{
    return (const char *)w->raw + (size_t)i * cb_row_bytes(w->type, w->n_in);
}

struct mm_job {
    struct par *par;
    const struct mm *mm;
    const float *x;
    size_t x_stride;
    int n_tok;
};

static void mm_row(void *ctx, int i, int thread)
{
    const struct mm_job *job = ctx;
    const struct mm *mm = job->mm;
    const int n = mm->w->n_in;
    float *row = cb_par_scratch(job->par, thread);

    cb_dtype[mm->w->type].to_f32(weight_row(mm->w, i), row, n);
    for (int t = 0; t < job->n_tok; t++) {
        const float *x = job->x + (size_t)t * job->x_stride;
        float *y = mm->y + (size_t)t * (size_t)mm->y_stride + i;
        double sum = mm->bias ? (double)mm->bias[i] : 0.0;
        for (int j = 0; j < n; j++)
            sum += (double)row[j] * (double)x[j];
        *y = (float)(mm->add ? (double)*y + sum : sum);
    }
}

static void matmul_sets(struct device *d, const struct mm *mm, int n, const float *x, size_t x_step,
                        size_t x_stride, int n_tok)
{
    for (int i = 0; i < n; i++) {
        struct mm_job job = { d->par, &mm[i], x + (size_t)i * x_step, x_stride, n_tok };
        cb_par_for(d->par, mm[i].w->n_out, mm_row, &job);
    }
}

static void matmul(struct device *d, const struct mm *mm, int n, const float *x, int n_tok)
{
    matmul_sets(d, mm, n, x, 0, n ? (size_t)mm->w->n_in : 0, n_tok);
}

static void get_rows(struct device *d, const struct weight *w, const int32_t *ids, int n, float *y)
{
    (void)d;
    for (int i = 0; i < n; i++)
        cb_dtype[w->type].to_f32(weight_row(w, ids[i]), y + (size_t)i * (size_t)w->n_in, w->n_in);
}

static void norm_row(const float *x, const float *w, float eps, int n, float *y)
{
    double sum = 0.0, r;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    r = 1.0 / sqrt(sum / n + (double)eps);
    for (int i = 0; i < n; i++)
        y[i] = (float)((double)x[i] * r * (double)w[i]);
}

static void rmsnorm(struct device *d, const float *x, const float *w, float eps, int n, int n_row,
                    int n_tok, int x_stride, float *y, int y_stride)
{
    (void)d;
    for (int64_t t = 0; t < n_tok; t++)
        for (int64_t r = 0; r < n_row; r++)
            norm_row(x + t * x_stride + r * n, w, eps, n, y + t * y_stride + r * n);
}

static void layernorm_row(const float *x, const float *w, const float *b, float eps, int n,
                          float *y)
{
    double mean = 0.0, sum = 0.0, r;

    for (int i = 0; i < n; i++)
        mean += (double)x[i] / n;
    for (int i = 0; i < n; i++)
        sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    r = 1.0 / sqrt(sum / n + (double)eps);
    for (int i = 0; i < n; i++)
        y[i] = (float)(((double)x[i] - mean) * r * (double)w[i] + (b ? (double)b[i] : 0.0));
}

static void layernorm(struct device *d, const float *x, const float *w, const float *b, float eps,
                      int n, int n_row, int n_tok, int x_stride, float *y, int y_stride)
{
    (void)d;
    for (int64_t t = 0; t < n_tok; t++)
        for (int64_t r = 0; r < n_row; r++)
            layernorm_row(x + t * x_stride + r * n, w, b, eps, n, y + t * y_stride + r * n);
}

static void rotate(float *a, float *b, const float *cs)
{
    const double c = (double)cs[0], s = (double)cs[1], x = (double)*a, y = (double)*b;
    *a = (float)(x * c - y * s);
    *b = (float)(x * s + y * c);
}

static void rope(struct device *d, enum rope_kind kind, float *x, int n_tok, int n_head, int hd,
                 int stride, int n_rot, const float *cs)
{
    const int half = n_rot / 2;

    (void)d;
    for (int64_t t = 0; t < n_tok; t++)
        for (int64_t h = 0; h < n_head; h++) {
            float *v = x + t * stride + h * hd;
            for (int i = 0; i < half; i++) {
                float *a = kind == ROPE_PAIR ? v + 2 * i : v + i;
                rotate(a, kind == ROPE_PAIR ? a + 1 : a + half, cs + 2 * (t * half + i));
            }
        }
}

static double silu(double x)
{
    return x / (1.0 + exp(-x));
}

static double gelu_tanh(double x)
{
    const double sqrt_2_over_pi = 0.79788456080286535588;
    return 0.5 * x * (1.0 + tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x)));
}

static double gelu(double x)
{
    return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
}

static double swiglu_oai(double g, double u)
{
    g = fmin(g, 7.0);
    return g / (1.0 + exp(-1.702 * g)) * (fmax(fmin(u, 7.0), -7.0) + 1.0);
}

static double gated(enum act_kind act, double g, double u)
{
    switch (act) {
    case ACT_SILU:
        return silu(g) * u;
    case ACT_GELU_TANH:
        return gelu_tanh(g) * u;
    case ACT_GELU:
        return gelu(g) * u;
    case ACT_SIGMOID:
        return u / (1.0 + exp(-g));
    case ACT_RELU2:
        return g > 0.0 ? g * g * u : 0.0;
    case ACT_SWIGLU_OAI:
        break;
    }
    return swiglu_oai(g, u);
}

static void glu(struct device *d, enum act_kind act, float *gate, const float *up, int n, int n_tok)
{
    (void)d;
    for (size_t i = 0; i < (size_t)n * (size_t)n_tok; i++)
        gate[i] = (float)gated(act, (double)gate[i], up ? (double)up[i] : 1.0);
}

static void matmul_glu(struct device *d, const struct mm *mm, enum act_kind act, const float *x,
                       int n_tok)
{
    matmul(d, mm, 2, x, n_tok);
    glu(d, act, mm[0].y, mm[1].y, mm->w->n_out, n_tok);
}

static void add(struct device *d, float *y, const float *x, float a, size_t n)
{
    (void)d;
    for (size_t i = 0; i < n; i++)
        y[i] = (float)((double)y[i] + (double)a * (double)x[i]);
}

static void scale(struct device *d, float *x, float a, float cap, size_t n)
{
    (void)d;
    for (size_t i = 0; i < n; i++) {
        const double y = (double)a * (double)x[i];
        x[i] = (float)(cap > 0.0f ? (double)cap * tanh(y / (double)cap) : y);
    }
}

/* An unsigned integer with the order of the floats; -0 and 0 are equal. */
static uint32_t order_key(float x)
{
    uint32_t u;

    x += 0.0f;
    memcpy(&u, &x, sizeof u);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

static int count_from(const float *x, int n, uint32_t key)
{
    int c = 0;
    for (int i = 0; i < n; i++)
        c += order_key(x[i]) >= key;
    return c;
}

/* The k-th largest entry's key is the largest key that at least k entries reach. It is found bit by
 * bit. */
static void topk(struct device *d, const float *x, int n, int k, int32_t *idx)
{
    uint32_t kth = 0;
    int n_equal, out = 0;

    (void)d;
    if (k <= 0)
        return;
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1)
        if (count_from(x, n, kth | bit) >= k)
            kth |= bit;
    n_equal = kth == UINT32_MAX ? k : k - count_from(x, n, kth + 1);
    for (int i = 0; i < n && out < k; i++) {
        const uint32_t key = order_key(x[i]);
        if (key > kth || (key == kth && n_equal-- > 0))
            idx[out++] = i;
    }
}

/* of n >= 1 numbers */
static double log_sum_exp(const float *x, int n)
{
    double sum = 0, max = -INFINITY;

    for (int j = 0; j < n; j++)
        max = (double)x[j] > max ? (double)x[j] : max;
    for (int j = 0; j < n; j++)
        sum += exp((double)x[j] - max);
    return max + log(sum);
}

static void head_lse(struct device *d, const float *logit, int stride, int n_head, int n,
                     float *lse)
{
    (void)d;
    for (int h = 0; h < n_head; h++)
        lse[h] = n ? (float)log_sum_exp(logit + (int64_t)h * stride, n) : -INFINITY;
}

static void best_head(struct device *d, const float *logit, int stride, int n_head, int n,
                      int normed, float *best)
{
    (void)d;
    for (int h = 0; h < n_head; h++) {
        const float *x = logit + (int64_t)h * stride;
        const double lse = normed && n ? log_sum_exp(x, n) : 0;
        for (int j = 0; j < n; j++) {
            const float y = normed ? (float)((double)x[j] - lse) : x[j];
            best[j] = h && best[j] > y ? best[j] : y;
        }
    }
}

struct nearest {
    const float *x, *y;
    int m, hd;
    int32_t *idx;
    float *dot;
};

static void nearest_row(void *ctx, int i, int thread)
{
    const struct nearest *t = ctx;
    const float *x = t->x + (int64_t)i * t->hd;
    double best = -INFINITY;

    (void)thread;
    for (int j = 0; j < t->m; j++) {
        double sum = 0.0;
        for (int c = 0; c < t->hd; c++)
            sum += (double)x[c] * (double)t->y[(int64_t)j * t->hd + c];
        if (sum > best) {
            best = sum;
            t->idx[i] = j;
        }
    }
    t->dot[i] = (float)best;
}

static void nearest(struct device *d, const float *x, int n, const float *y, int m, int hd,
                    int32_t *idx, float *dot)
{
    struct nearest t = { x, y, m, hd, idx, dot };
    cb_par_for(d->par, n, nearest_row, &t);
}

static const struct ops ref_ops = {
    .name = "ref",
    .load = load,
    .unload = unload,
    .reserve = reserve,
    .matmul = matmul,
    .matmul_sets = matmul_sets,
    .get_rows = get_rows,
    .rmsnorm = rmsnorm,
    .layernorm = layernorm,
    .rope = rope,
    .glu = glu,
    .matmul_glu = matmul_glu,
    .add = add,
    .scale = scale,
    .attention = cb_ref_attention,
    .score = cb_ref_score,
    .join = cb_ref_join,
    .sink = cb_ref_sink,
    .kv_encode = cb_ref_kv_encode,
    .kv_decode = cb_ref_kv_decode,
    .nearest = nearest,
    .best_head = best_head,
    .head_lse = head_lse,
    .topk = topk,
    .sketch = cb_ref_sketch,
    .sketch_topk = cb_ref_sketch_topk,
    .bounds = cb_ref_bounds,
    .page_scores = cb_ref_page_scores,
    .index_scan = cb_ref_index_scan,
    .block_mass = cb_ref_block_mass,
    .line_sums = cb_ref_line_sums,
    .short_conv = cb_ref_short_conv,
    .decays = cb_ref_decays,
    .recurrence = cb_ref_recurrence,
};

static int open_ref(struct device *d, const struct device_want *want)
{
    (void)want;
    d->ops = &ref_ops;
    d->isa = "c";
    return CB_OK;
}

static void close_ref(struct device *d)
{
    (void)d;
}

static int available(const char **why_not)
{
    (void)why_not;
    return 1;
}

const struct backend cb_backend_ref = {
    .name = "ref",
    .text = "plain C with double sums, the reference of every other device",
    .open = open_ref,
    .close = close_ref,
    .available = available,
};
