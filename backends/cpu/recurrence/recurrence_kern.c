/* SPDX-License-Identifier: MIT */
/* recurrence_kern.c - short convolutions, decays, and linear attention, for one ISA. Columns of a
 * state are independent, so a pair of vectors of them goes through all tokens while it lies in the
 * first cache. The pass that updates the state by a token sums what the next one reads. Built once
 * for each ISA. */
#include "device/recurrence.h"

#include "cpu/vector/kern_vec.h"
#include "cpu/vector/vec.h"

/* ---- convolution ---- */

/* n <= VW channels from c0 on; taps and past rows are in registers. */
VEC_INLINE void conv_lanes(const struct short_conv *c, int c0, int n, int n_tap)
{
    const vf bias = c->bias ? v_load_n(c->bias + c0, n) : v_set1(0.0f);
    vf past[CONV_MOST], w[CONV_MOST];

    for (int j = 0; j < n_tap; j++)
        w[j] = v_load_n(c->w + (size_t)j * (size_t)c->n + c0, n);
    for (int j = 0; j < n_tap - 1; j++)
        past[j] = v_load_n(c->from + (size_t)j * (size_t)c->n + c0, n);
    for (int64_t t = 0; t < c->n_tok; t++) {
        const int64_t at = t * c->x_stride + c0;
        vf sum = bias, x = v_load_n(c->x + at, n);
        if (c->gate_in)
            x = v_mul(x, v_load_n(c->gate_in + at, n));
        past[n_tap - 1] = x;
        for (int j = 0; j < n_tap; j++)
            sum = v_fma(past[j], w[j], sum);
        if (c->silu)
            sum = v_div(sum, v_add(v_set1(1.0f), v_exp(v_sub(v_set1(0.0f), sum))));
        if (c->gate_out)
            sum = v_mul(sum, v_load_n(c->gate_out + at, n));
        v_store_n(c->y + t * c->y_stride + c0, sum, n);
        for (int j = 0; j < n_tap - 1; j++)
            past[j] = past[j + 1];
    }
    for (int j = 0; j < n_tap - 1; j++)
        v_store_n(c->to + (size_t)j * (size_t)c->n + c0, past[j], n);
}

VEC_INLINE void conv_taps(const struct short_conv *c, int from, int n, int n_tap)
{
    int i = 0;

    for (; i + VW <= n; i += VW)
        conv_lanes(c, from + i, VW, n_tap);
    if (i < n)
        conv_lanes(c, from + i, n - i, n_tap);
}

static void conv(const struct short_conv *c, int from, int n)
{
    if (c->n_tap == 4)
        conv_taps(c, from, n, 4);
    else if (c->n_tap == 3)
        conv_taps(c, from, n, 3);
    else
        conv_taps(c, from, n, c->n_tap);
}

/* ---- decay ---- */

/* log(1 + y) for y in [0, 1], as 2 artanh(y / (2 + y)); 2e-7 relative */
VEC_INLINE vf log1p_unit(vf y)
{
    const vf z = v_div(y, v_add(y, v_set1(2.0f))), z2 = v_mul(z, z);
    vf p = v_set1(2.0f / 13);

    p = v_fma(p, z2, v_set1(2.0f / 11));
    p = v_fma(p, z2, v_set1(2.0f / 9));
    p = v_fma(p, z2, v_set1(2.0f / 7));
    p = v_fma(p, z2, v_set1(2.0f / 5));
    p = v_fma(p, z2, v_set1(2.0f / 3));
    p = v_fma(p, z2, v_set1(2.0f));
    return v_mul(p, z);
}

VEC_INLINE vf softplus(vf x)
{
    return v_add(v_max(x, v_set1(0.0f)), log1p_unit(v_exp(v_sub(v_set1(0.0f), v_abs(x)))));
}

/* a[i / per] of n <= VW numbers from i on */
VEC_INLINE vf rates(const struct decays *x, int i, int n)
{
    float a[VW];

    if (x->per == 1)
        return v_load_n(x->a + i, n);
    for (int j = 0; j < n; j++)
        a[j] = x->a[(i + j) / x->per];
    return v_load_n(a, n);
}

VEC_INLINE void decay_lanes(const struct decays *x, int64_t t, int i, int n)
{
    const vf in = v_add(v_load_n(x->x + t * x->x_stride + i, n), v_load_n(x->bias + i, n));
    const vf step = softplus(in);

    if (x->step)
        v_store_n(x->step + t * x->n + i, step, n);
    v_store_n(x->decay + t * x->n + i, v_exp(v_mul(step, rates(x, i, n))), n);
}

static void decays(const struct decays *x, int from, int n)
{
    for (int64_t t = from; t < from + n; t++) {
        int i = 0;
        for (; i + VW <= x->n; i += VW)
            decay_lanes(x, t, i, VW);
        if (i < x->n)
            decay_lanes(x, t, i, x->n - i);
    }
}

/* ---- state ---- */

enum { COLUMNS = 2 }; /* vectors of columns that go through the tokens together */

/* Token t as a pair of columns' pass reads it */
struct state_token {
    const float *q, *k, *fade; /* fade: [dk] by row, or [1] */
    float beta;
    float kept[STATE_MOST_DK]; /* fade * k: what the state before it is read with */
};

VEC_INLINE void state_token(const struct recurrence *r, int h, int64_t t, struct state_token *x)
{
    const int64_t group = cb_state_group(r, h);

    x->q = r->q + t * r->qk_stride + group * r->dk;
    x->k = r->k + t * r->qk_stride + group * r->dk;
    x->fade = r->decay + (t * r->n_head + h) * (r->by_row ? r->dk : 1);
    x->beta = r->beta[t * r->n_head + h];
    for (int i = 0; r->erase && i < r->dk; i += VW) {
        const int n = r->dk - i < VW ? r->dk - i : VW;
        const vf fade = r->by_row ? v_load_n(x->fade + i, n) : v_set1(*x->fade);
        v_store_n(x->kept + i, v_mul(fade, v_load_n(x->k + i, n)), n);
    }
}

/* The state's rows i.. of the columns at s[], STATE_STRIP floats apart, times kept -> read[] */
VEC_INLINE void read_state(const float *const *s, const float *kept, int dk, int n_col, vf *read)
{
    for (int c = 0; c < n_col; c++)
        read[c] = v_set1(0.0f);
    for (int i = 0; i < dk; i++)
        for (int c = 0; c < n_col; c++)
            read[c] = v_fma(v_load(s[c] + (size_t)i * STATE_STRIP), v_set1(kept[i]), read[c]);
}

/* S <- fade S + k u^T; out += S^T q; read = S^T kept of the next token, where `next` is not NULL */
VEC_INLINE void update(const struct state_token *x, const struct state_token *next, int by_row,
                       int dk, int n_col, const float *const *from, float *const *to, const vf *u,
                       vf *out, vf *read)
{
    const vf all = v_set1(*x->fade);

    for (int c = 0; c < n_col; c++)
        read[c] = v_set1(0.0f);
    for (int i = 0; i < dk; i++) {
        const vf fade = by_row ? v_set1(x->fade[i]) : all, k = v_set1(x->k[i]);
        const vf q = v_set1(x->q[i]);
        for (int c = 0; c < n_col; c++) {
            const vf old = v_load(from[c] + (size_t)i * STATE_STRIP);
            const vf s = v_fma(k, u[c], v_mul(fade, old));
            v_store(to[c] + (size_t)i * STATE_STRIP, s);
            out[c] = v_fma(s, q, out[c]);
            if (next)
                read[c] = v_fma(s, v_set1(next->kept[i]), read[c]);
        }
    }
}

/* n_col vectors of columns of head h, from column `col` on, go through all tokens. */
VEC_INLINE void columns(const struct recurrence *r, int h, int col, int n_col, int erase,
                        int by_row)
{
    const size_t head = (size_t)h * cb_state_floats(r->dk, r->dv);
    const vf skip = v_set1(r->skip ? r->skip[h] : 0.0f);
    const float *from[COLUMNS];
    float *to[COLUMNS];
    struct state_token x[2];
    vf read[COLUMNS], u[COLUMNS], out[COLUMNS];
    int n[COLUMNS];

    for (int c = 0; c < n_col; c++) {
        const int j = col + c * VW;
        const size_t at = head + (size_t)(j / STATE_STRIP * r->dk) * STATE_STRIP + j % STATE_STRIP;
        from[c] = r->from + at;
        to[c] = r->to + at;
        n[c] = r->dv - j < VW ? (r->dv > j ? r->dv - j : 0) : VW;
        read[c] = v_set1(0.0f);
    }
    if (r->n_tok > 0)
        state_token(r, h, 0, &x[0]);
    if (erase)
        read_state(from, x[0].kept, r->dk, n_col, read);
    for (int64_t t = 0; t < r->n_tok; t++) {
        const struct state_token *now = &x[t & 1];
        struct state_token *next = erase && t + 1 < r->n_tok ? &x[(t + 1) & 1] : NULL;
        const float *v = r->v + t * r->v_stride + (int64_t)h * r->dv + col;
        float *o = r->out + t * r->out_stride + (int64_t)h * r->dv + col;
        if (t + 1 < r->n_tok)
            state_token(r, h, t + 1, &x[(t + 1) & 1]);
        for (int c = 0; c < n_col; c++) {
            const vf vc = v_load_n(v + c * VW, n[c]);
            u[c] = v_mul(v_set1(now->beta), erase ? v_sub(vc, read[c]) : vc);
            out[c] = v_mul(skip, vc);
        }
        update(now, next, by_row, r->dk, n_col, t ? (const float *const *)to : from, to, u, out,
               read);
        for (int c = 0; c < n_col; c++)
            v_store_n(o + c * VW, out[c], n[c]);
    }
    for (int c = 0; c < n_col && !r->n_tok; c++)
        for (int i = 0; i < r->dk; i++)
            v_store(to[c] + (size_t)i * STATE_STRIP, v_load(from[c] + (size_t)i * STATE_STRIP));
}

VEC_INLINE void all_columns(const struct recurrence *r, int h, int from, int n, int erase,
                            int by_row)
{
    const int end = (from + n) * STATE_STRIP;
    int col = from * STATE_STRIP;

    for (; col + COLUMNS * VW <= end; col += COLUMNS * VW)
        columns(r, h, col, COLUMNS, erase, by_row);
    if (col < end)
        columns(r, h, col, 1, erase, by_row);
}

static void strips(const struct recurrence *r, int h, int from, int n)
{
    if (!r->erase)
        all_columns(r, h, from, n, 0, r->by_row);
    else if (r->by_row)
        all_columns(r, h, from, n, 1, 1);
    else
        all_columns(r, h, from, n, 1, 0);
}

const struct kern_recurrence VEC_NAME(cb_recurrence_) = {
    .conv = conv,
    .decays = decays,
    .strips = strips,
};
