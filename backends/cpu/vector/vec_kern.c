/* SPDX-License-Identifier: MIT */
/* vec_kern.c - norms, rotations and activations, a row at a time, and the ISA's table of kernels.
 * Built once for each ISA. */
#include "kern_vec.h"
#include "vec.h"
#include "vec_rows.h"

/* sum over VW lanes, then a tree */
static void rmsnorm(const float *x, const float *w, float eps, int n, float *y)
{
    vf sum = v_set1(0.0f), r;
    int i = 0;

    for (; i + VW <= n; i += VW)
        sum = v_fma(v_load(x + i), v_load(x + i), sum);
    if (i < n) {
        const vf t = v_load_n(x + i, n - i);
        sum = v_fma(t, t, sum);
    }
    r = v_set1(1.0f / sqrtf(v_hsum(sum) / (float)n + eps));
    for (i = 0; i + VW <= n; i += VW)
        v_store(y + i, v_mul(v_mul(v_load(x + i), r), v_load(w + i)));
    if (i < n)
        v_store_n(y + i, v_mul(v_mul(v_load_n(x + i, n - i), r), v_load_n(w + i, n - i)), n - i);
}

/* Sum of (x - mean)^2, or of x where `mean` is 0 and `squares` 0 */
VEC_INLINE float moment(const float *x, float mean, int squares, int n)
{
    const vf m = v_set1(mean);
    vf sum = v_set1(0.0f);
    float s;
    int i = 0;

    for (; i + VW <= n; i += VW) {
        const vf t = v_sub(v_load(x + i), m);
        sum = squares ? v_fma(t, t, sum) : v_add(sum, t);
    }
    s = v_hsum(sum);
    for (; i < n; i++)
        s += squares ? (x[i] - mean) * (x[i] - mean) : x[i] - mean;
    return s;
}

static void layernorm(const float *x, const float *w, const float *b, float eps, int n, float *y)
{
    const float mean = moment(x, 0.0f, 0, n) / (float)n;
    const float r = 1.0f / sqrtf(moment(x, mean, 1, n) / (float)n + eps);
    const vf mv = v_set1(mean), rv = v_set1(r), zero = v_set1(0.0f);
    int i = 0;

    for (; i + VW <= n; i += VW) {
        const vf t = v_mul(v_sub(v_load(x + i), mv), rv);
        v_store(y + i, v_fma(t, v_load(w + i), b ? v_load(b + i) : zero));
    }
    for (; i < n; i++)
        y[i] = (x[i] - mean) * r * w[i] + (b ? b[i] : 0.0f);
}

/* Adjacent pairs: x * (c, c) + swap(x) * (-s, s). */
static void rope_pair(float *x, int n_rot, const float *c2, const float *s2)
{
    int i = 0;

    for (; i + VW <= n_rot; i += VW) {
        const vf v = v_load(x + i);
        v_store(x + i, v_fma(v, v_load(c2 + i), v_mul(v_swap(v), v_load(s2 + i))));
    }
    for (; i < n_rot; i += 2) {
        const float a = x[i], b = x[i + 1];
        x[i] = a * c2[i] + b * s2[i];
        x[i + 1] = b * c2[i + 1] + a * s2[i + 1];
    }
}

static void rope_half(float *x, int half, const float *c, const float *s)
{
    int i = 0;

    for (; i + VW <= half; i += VW) {
        const vf a = v_load(x + i), b = v_load(x + half + i), cv = v_load(c + i),
                 sv = v_load(s + i);
        v_store(x + i, v_sub(v_mul(a, cv), v_mul(b, sv)));
        v_store(x + half + i, v_fma(a, sv, v_mul(b, cv)));
    }
    for (; i < half; i++) {
        const float a = x[i], b = x[half + i];
        x[i] = a * c[i] - b * s[i];
        x[half + i] = a * s[i] + b * c[i];
    }
}

enum { ROPE_DIMS = 128 }; /* dims rotated at a time; longer rows go in pieces */

static void rope_piece(enum rope_kind kind, float *x, int n_head, int hd, int half, int from, int n,
                       const float *cs)
{
    float c[ROPE_DIMS], s[ROPE_DIMS];
    const int pair = kind == ROPE_PAIR;

    for (int i = 0; i < n; i++) {
        const float ci = cs[2 * (from + i)], si = cs[2 * (from + i) + 1];
        if (pair) {
            c[2 * i] = c[2 * i + 1] = ci;
            s[2 * i] = -si;
            s[2 * i + 1] = si;
        } else {
            c[i] = ci;
            s[i] = si;
        }
    }
    for (int h = 0; h < n_head; h++) {
        float *v = x + (size_t)h * (size_t)hd;
        if (pair)
            rope_pair(v + 2 * from, 2 * n, c, s);
        else if (n == half)
            rope_half(v, half, c, s);
        else
            for (int i = 0; i < n; i++) {
                const float a = v[from + i], b = v[from + half + i];
                v[from + i] = a * c[i] - b * s[i];
                v[from + half + i] = a * s[i] + b * c[i];
            }
    }
}

static void rope(enum rope_kind kind, float *x, int n_head, int hd, int n_rot, const float *cs)
{
    const int half = n_rot / 2, step = kind == ROPE_PAIR ? ROPE_DIMS / 2 : ROPE_DIMS;

    for (int from = 0; from < half; from += step)
        rope_piece(kind, x, n_head, hd, half, from, half - from < step ? half - from : step, cs);
}

/* x / 2 (1 + erf(x / sqrt 2)) = max(x, 0) - |x| / 2 erfc(|x| / sqrt 2); erfc by Abramowitz and
 * Stegun 7.1.26, 1.5e-7 absolute */
VEC_INLINE vf gelu(vf x)
{
    const vf z = v_mul(v_abs(x), v_set1(0.70710678f));
    const vf t = v_div(v_set1(1.0f), v_fma(z, v_set1(0.3275911f), v_set1(1.0f)));
    vf p = v_set1(1.061405429f);

    p = v_fma(p, t, v_set1(-1.453152027f));
    p = v_fma(p, t, v_set1(1.421413741f));
    p = v_fma(p, t, v_set1(-0.284496736f));
    p = v_fma(p, t, v_set1(0.254829592f));
    p = v_mul(v_mul(p, t), v_exp(v_mul(z, v_sub(v_set1(0.0f), z))));
    return v_sub(v_max(x, v_set1(0.0f)), v_mul(v_mul(v_abs(x), v_set1(0.5f)), p));
}

VEC_INLINE vf act_of(enum act_kind act, vf x)
{
    const vf one = v_set1(1.0f);
    vf t;

    if (act == ACT_SILU)
        return v_div(x, v_add(one, v_exp(v_sub(v_set1(0.0f), x))));
    if (act == ACT_SIGMOID)
        return v_div(one, v_add(one, v_exp(v_sub(v_set1(0.0f), x))));
    if (act == ACT_RELU2) {
        x = v_max(x, v_set1(0.0f));
        return v_mul(x, x);
    }
    if (act == ACT_GELU)
        return gelu(x);
    if (act == ACT_SWIGLU_OAI) {
        x = v_min(x, v_set1(7.0f));
        return v_div(x, v_add(one, v_exp(v_mul(x, v_set1(-1.702f)))));
    }
    t = v_mul(x, v_fma(v_mul(x, x), v_set1(0.79788456f * 0.044715f), v_set1(0.79788456f)));
    /* x / 2 (1 + tanh t) = x / (1 + e^-2t) */
    return v_div(x, v_add(one, v_exp(v_mul(v_set1(-2.0f), t))));
}

VEC_INLINE vf up_of(enum act_kind act, vf up)
{
    const vf top = v_set1(7.0f);
    return act == ACT_SWIGLU_OAI
               ? v_add(v_max(v_min(up, top), v_sub(v_set1(0.0f), top)), v_set1(1.0f))
               : up;
}

VEC_INLINE void glu_of(enum act_kind act, float *gate, const float *up, size_t n)
{
    size_t i = 0;

    for (; i + VW <= n; i += VW)
        v_store(gate + i, v_mul(act_of(act, v_load(gate + i)), up_of(act, v_load(up + i))));
    if (i < n) {
        const int k = (int)(n - i);
        v_store_n(gate + i,
                  v_mul(act_of(act, v_load_n(gate + i, k)), up_of(act, v_load_n(up + i, k))), k);
    }
}

VEC_INLINE void act_alone(enum act_kind act, float *x, size_t n)
{
    size_t i = 0;

    for (; i + VW <= n; i += VW)
        v_store(x + i, act_of(act, v_load(x + i)));
    if (i < n)
        v_store_n(x + i, act_of(act, v_load_n(x + i, (int)(n - i))), (int)(n - i));
}

VEC_INLINE void glu_or_act(enum act_kind act, float *gate, const float *up, size_t n)
{
    if (up)
        glu_of(act, gate, up, n);
    else
        act_alone(act, gate, n);
}

static void glu(enum act_kind act, float *gate, const float *up, size_t n)
{
    switch (act) {
    case ACT_SILU:
        glu_or_act(ACT_SILU, gate, up, n);
        break;
    case ACT_GELU_TANH:
        glu_or_act(ACT_GELU_TANH, gate, up, n);
        break;
    case ACT_GELU:
        glu_or_act(ACT_GELU, gate, up, n);
        break;
    case ACT_SWIGLU_OAI:
        glu_or_act(ACT_SWIGLU_OAI, gate, up, n);
        break;
    case ACT_SIGMOID:
        glu_or_act(ACT_SIGMOID, gate, up, n);
        break;
    case ACT_RELU2:
        glu_or_act(ACT_RELU2, gate, up, n);
        break;
    }
}

static void add(float *y, const float *x, float a, size_t n)
{
    const vf av = v_set1(a);
    size_t i = 0;

    for (; i + VW <= n; i += VW)
        v_store(y + i, v_fma(v_load(x + i), av, v_load(y + i)));
    if (i < n) {
        const int k = (int)(n - i);
        v_store_n(y + i, v_fma(v_load_n(x + i, k), av, v_load_n(y + i, k)), k);
    }
}

static void scale(float *x, float a, float cap, size_t n)
{
    const vf av = v_set1(cap > 0.0f ? a / cap : a), cv = v_set1(cap);
    size_t i = 0;

    for (; i < n; i += VW) {
        const int k = n - i < VW ? (int)(n - i) : VW;
        const vf y = v_mul(v_load_n(x + i, k), av);
        v_store_n(x + i, cap > 0.0f ? v_mul(cv, v_tanh(y)) : y, k);
    }
}

static void mix(float *out, float a, const float *out2, float b, int n)
{
    const vf av = v_set1(a), bv = v_set1(b);
    int i = 0;

    for (; i + VW <= n; i += VW)
        v_store(out + i, v_fma(v_load(out + i), av, v_mul(v_load(out2 + i), bv)));
    if (i < n) {
        const int k = n - i;
        v_store_n(out + i, v_fma(v_load_n(out + i, k), av, v_mul(v_load_n(out2 + i, k), bv)), k);
    }
}

/* sum over VW lanes, then a tree, then the channels past whole vectors */
static float bound(const void *bounds, const float *q, int hd)
{
    const char *min = bounds, *max = min + 2 * (size_t)hd;
    vf sum = v_set1(0.0f);
    float s;
    int i = 0;

    for (; i + VW <= hd; i += VW) {
        const vf x = v_load(q + i), lo = v_load_f16(min + 2 * i), hi = v_load_f16(max + 2 * i);
        sum = v_add(sum, v_max(v_mul(x, lo), v_mul(x, hi)));
    }
    s = v_hsum(sum);
    for (; i < hd; i++)
        s += fmaxf(q[i] * v_f16(min + 2 * i), q[i] * v_f16(max + 2 * i));
    return s;
}

static int at_least(const float *x, int n, float floor, int from, int32_t *idx)
{
    const vf y = v_set1(floor);
    int i = 0, out = 0;

    for (; i + VW <= n; i += VW)
        for (unsigned in = v_not_below(v_load(x + i), y); in; in &= in - 1)
            idx[out++] = from + i + __builtin_ctz(in);
    for (; i < n; i++)
        if (!(x[i] < floor))
            idx[out++] = from + i;
    return out;
}

const struct kern_vec VEC_NAME(cb_vec_) = {
    .rmsnorm = rmsnorm,
    .layernorm = layernorm,
    .rope = rope,
    .glu = glu,
    .add = add,
    .scale = scale,
    .mix = mix,
    .encode = VEC_NAME(cb_encode_row_),
    .decode = VEC_NAME(cb_decode_row_),
    .bound = bound,
    .at_least = at_least,
    .attn = &VEC_NAME(cb_attn_),
    .kivi = &VEC_NAME(cb_kivi_),
    .recurrence = &VEC_NAME(cb_recurrence_),
};
