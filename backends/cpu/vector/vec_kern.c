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

VEC_INLINE vf act_of(enum act_kind act, vf x)
{
    const vf one = v_set1(1.0f);
    vf t;

    if (act == ACT_SILU)
        return v_div(x, v_add(one, v_exp(v_sub(v_set1(0.0f), x))));
    t = v_mul(x, v_fma(v_mul(x, x), v_set1(0.79788456f * 0.044715f), v_set1(0.79788456f)));
    /* x / 2 (1 + tanh t) = x / (1 + e^-2t) */
    return v_div(x, v_add(one, v_exp(v_mul(v_set1(-2.0f), t))));
}

VEC_INLINE void glu_of(enum act_kind act, float *gate, const float *up, size_t n)
{
    size_t i = 0;

    for (; i + VW <= n; i += VW)
        v_store(gate + i, v_mul(act_of(act, v_load(gate + i)), v_load(up + i)));
    if (i < n) {
        const int k = (int)(n - i);
        v_store_n(gate + i, v_mul(act_of(act, v_load_n(gate + i, k)), v_load_n(up + i, k)), k);
    }
}

static void glu(enum act_kind act, float *gate, const float *up, size_t n)
{
    if (act == ACT_SILU)
        glu_of(ACT_SILU, gate, up, n);
    else
        glu_of(ACT_GELU_TANH, gate, up, n);
}

static void add(float *y, const float *x, size_t n)
{
    size_t i = 0;

    for (; i + VW <= n; i += VW)
        v_store(y + i, v_add(v_load(y + i), v_load(x + i)));
    for (; i < n; i++)
        y[i] += x[i];
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

const struct kern_vec VEC_NAME(cb_vec_) = {
    .rmsnorm = rmsnorm,
    .rope = rope,
    .glu = glu,
    .add = add,
    .mix = mix,
    .encode = VEC_NAME(cb_encode_row_),
    .decode = VEC_NAME(cb_decode_row_),
    .attn = &VEC_NAME(cb_attn_),
    .kivi = &VEC_NAME(cb_kivi_),
    .sketch = &VEC_NAME(cb_sketch_kern_),
};
