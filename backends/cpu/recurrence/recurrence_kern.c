/* SPDX-License-Identifier: MIT */
/* recurrence_kern.c - short convolutions, decays, and linear attention, for one ISA. Columns of a
 * state are independent, so a pair of vectors of them goes through all tokens while it lies in the
 * first cache. The pass that updates the state by a token sums what the next one reads. Built once
 * for each ISA. */
#include "device/recurrence.h"

#include "cpu/vector/kern_vec.h"
#include "cpu/vector/vec.h"

/* Masked stores are slow on some processors, so whole vectors do without a mask. */
VEC_INLINE vf load_some(const float *x, int n)
{
    return n == VW ? v_load(x) : v_load_n(x, n);
}

VEC_INLINE void store_some(float *x, vf v, int n)
{
    if (n == VW)
        v_store(x, v);
    else
        v_store_n(x, v, n);
}

/* ---- convolution ---- */

/* n <= VW channels from c0 on; taps and past rows are in registers. */
VEC_INLINE void conv_lanes(const struct short_conv *c, int c0, int n, int n_tap)
{
    const vf bias = c->bias ? load_some(c->bias + c0, n) : v_set1(0.0f);
    vf past[CONV_MOST], w[CONV_MOST];

    for (int j = 0; j < n_tap; j++)
        w[j] = load_some(c->w + (size_t)j * (size_t)c->n + c0, n);
    for (int j = 0; j < n_tap - 1; j++)
        past[j] = load_some(c->from + (size_t)j * (size_t)c->n + c0, n);
    for (int64_t t = 0; t < c->n_tok; t++) {
        const int64_t at = t * c->x_stride + c0;
        vf sum = bias, x = load_some(c->x + at, n);
        if (c->gate_in)
            x = v_mul(x, load_some(c->gate_in + at, n));
        past[n_tap - 1] = x;
        for (int j = 0; j < n_tap; j++)
            sum = v_fma(past[j], w[j], sum);
        if (c->silu)
            sum = v_div(sum, v_add(v_set1(1.0f), v_exp(v_sub(v_set1(0.0f), sum))));
        if (c->gate_out)
            sum = v_mul(sum, load_some(c->gate_out + at, n));
        store_some(c->y + t * c->y_stride + c0, sum, n);
        for (int j = 0; j < n_tap - 1; j++)
            past[j] = past[j + 1];
    }
    for (int j = 0; j < n_tap - 1; j++)
        store_some(c->to + (size_t)j * (size_t)c->n + c0, past[j], n);
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
        return load_some(x->a + i, n);
    for (int j = 0; j < n; j++)
        a[j] = x->a[(i + j) / x->per];
    return load_some(a, n);
}

VEC_INLINE void decay_lanes(const struct decays *x, int64_t t, int i, int n)
{
    const vf in = v_add(load_some(x->x + t * x->x_stride + i, n), load_some(x->bias + i, n));
    const vf step = softplus(in);

    if (x->step)
        store_some(x->step + t * x->n + i, step, n);
    store_some(x->decay + t * x->n + i, v_exp(v_mul(step, rates(x, i, n))), n);
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

/* Vectors of columns that go through the tokens together, and tokens that a pass over them takes
 * where nothing is erased: as many as registers hold */
enum { COLUMNS = 2, TOKENS = 2 };
#define UNROLL _Pragma("GCC unroll 4")

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
        const vf fade = r->by_row ? load_some(x->fade + i, n) : v_set1(*x->fade);
        store_some(x->kept + i, v_mul(fade, load_some(x->k + i, n)), n);
    }
}

/* Vectors of columns of a head: where they lie, STATE_STRIP floats apart, and how many of their
 * numbers are the state's */
struct state_columns {
    const float *from[COLUMNS];
    float *to[COLUMNS];
    int n[COLUMNS];
};

/* The state's rows i.. of the columns times kept -> read[] */
VEC_INLINE void read_state(const struct state_columns *s, const float *kept, int dk, int n_col,
                           vf *read)
{
    UNROLL for (int c = 0; c < n_col; c++) read[c] = v_set1(0.0f);
    for (int i = 0; i < dk; i++)
        UNROLL for (int c = 0; c < n_col; c++) read[c] =
            v_fma(v_load(s->from[c] + (size_t)i * STATE_STRIP), v_set1(kept[i]), read[c]);
}

/* S <- fade S + k u^T; out += S^T q; reads: read = S^T kept of the next token */
VEC_INLINE void update(const struct state_token *x, const float *kept, int reads, int by_row,
                       int dk, int n_col, const struct state_columns *s, const vf *u, vf *out,
                       vf *read)
{
    const float *const q = x->q, *const k = x->k, *const fade = x->fade;
    const vf all = v_set1(*fade);
    const float *from[COLUMNS];
    float *to[COLUMNS];
    vf add[COLUMNS], sum[COLUMNS], next[COLUMNS]; /* in registers */

    UNROLL for (int c = 0; c < n_col; c++)
    {
        from[c] = s->from[c];
        to[c] = s->to[c];
        add[c] = u[c];
        sum[c] = out[c];
        next[c] = v_set1(0.0f);
    }
    for (int i = 0; i < dk; i++) {
        const vf keep = by_row ? v_set1(fade[i]) : all, ki = v_set1(k[i]), qi = v_set1(q[i]);
        const vf kept_i = reads ? v_set1(kept[i]) : all;
        vf now[COLUMNS];
        UNROLL for (int c = 0; c < n_col; c++) now[c] = v_load(from[c] + (size_t)i * STATE_STRIP);
        UNROLL for (int c = 0; c < n_col; c++)
        {
            now[c] = v_fma(ki, add[c], v_mul(keep, now[c]));
            sum[c] = v_fma(now[c], qi, sum[c]);
            if (reads)
                next[c] = v_fma(now[c], kept_i, next[c]);
        }
        UNROLL for (int c = 0; c < n_col; c++) v_store(to[c] + (size_t)i * STATE_STRIP, now[c]);
    }
    UNROLL for (int c = 0; c < n_col; c++)
    {
        out[c] = sum[c];
        read[c] = next[c];
    }
}

VEC_INLINE struct state_columns columns_of(const struct recurrence *r, int h, int col, int n_col)
{
    const size_t head = (size_t)h * cb_state_floats(r->dk, r->dv);
    struct state_columns s;

    for (int c = 0; c < n_col; c++) {
        const int j = col + c * VW;
        const size_t at = head + (size_t)(j / STATE_STRIP * r->dk) * STATE_STRIP + j % STATE_STRIP;
        s.from[c] = r->from + at;
        s.to[c] = r->to + at;
        s.n[c] = r->dv - j < VW ? (r->dv > j ? r->dv - j : 0) : VW;
    }
    return s;
}

/* The state of no tokens */
VEC_INLINE void copy_columns(const struct recurrence *r, const struct state_columns *s, int n_col)
{
    for (int c = 0; c < n_col; c++)
        for (int i = 0; i < r->dk; i++)
            v_store(s->to[c] + (size_t)i * STATE_STRIP,
                    v_load(s->from[c] + (size_t)i * STATE_STRIP));
}

/* n_col vectors of columns of head h, from column `col` on, go through all tokens one by one: what
 * a token erases is what the state before it has. */
VEC_INLINE void erasing_columns(const struct recurrence *r, int h, int col, int n_col, int by_row)
{
    struct state_columns s = columns_of(r, h, col, n_col);
    const vf skip = v_set1(r->skip ? r->skip[h] : 0.0f);
    struct state_token x[2];
    vf read[COLUMNS], u[COLUMNS], out[COLUMNS];

    if (!r->n_tok)
        copy_columns(r, &s, n_col);
    if (r->n_tok > 0) {
        state_token(r, h, 0, &x[0]);
        read_state(&s, x[0].kept, r->dk, n_col, read);
    }
    for (int64_t t = 0; t < r->n_tok; t++) {
        const struct state_token *now = &x[t & 1];
        struct state_token *next = &x[(t + 1) & 1];
        const float *v = r->v + t * r->v_stride + (int64_t)h * r->dv + col;
        float *o = r->out + t * r->out_stride + (int64_t)h * r->dv + col;
        UNROLL for (int c = 0; c < n_col; c++)
        {
            const vf vc = load_some(v + c * VW, s.n[c]);
            u[c] = v_mul(v_set1(now->beta), v_sub(vc, read[c]));
            out[c] = v_mul(skip, vc);
        }
        if (t + 1 < r->n_tok) {
            state_token(r, h, t + 1, next);
            update(now, next->kept, 1, by_row, r->dk, n_col, &s, u, out, read);
        } else {
            update(now, NULL, 0, by_row, r->dk, n_col, &s, u, out, read);
        }
        UNROLL for (int c = 0; c < n_col; c++) store_some(o + c * VW, out[c], s.n[c]);
        for (int c = 0; c < n_col; c++)
            s.from[c] = s.to[c];
    }
}

/* Tokens t .. t + n - 1 of which none erases, in one pass: a row of the columns is read and written
 * once. Each number sees the same operations as token by token. */
VEC_INLINE void adding_pass(const struct recurrence *r, int h, int col, int n_col, int64_t t, int n,
                            const struct state_columns *s)
{
    const vf skip = v_set1(r->skip ? r->skip[h] : 0.0f);
    const int64_t group = cb_state_group(r, h);
    const int by_row = r->by_row, dk = r->dk;
    const float *q[TOKENS], *k[TOKENS], *fade[TOKENS], *from[COLUMNS];
    float *to[COLUMNS];
    vf u[TOKENS][COLUMNS], out[TOKENS][COLUMNS], keep[TOKENS];

    UNROLL for (int c = 0; c < n_col; c++)
    {
        from[c] = s->from[c];
        to[c] = s->to[c];
    }
    UNROLL for (int j = 0; j < n; j++)
    {
        const float *v = r->v + (t + j) * r->v_stride + (int64_t)h * r->dv + col;
        q[j] = r->q + (t + j) * r->qk_stride + group * dk;
        k[j] = r->k + (t + j) * r->qk_stride + group * dk;
        fade[j] = r->decay + ((t + j) * r->n_head + h) * (by_row ? dk : 1);
        keep[j] = v_set1(*fade[j]);
        UNROLL for (int c = 0; c < n_col; c++)
        {
            const vf vc = load_some(v + c * VW, s->n[c]);
            u[j][c] = v_mul(v_set1(r->beta[(t + j) * r->n_head + h]), vc);
            out[j][c] = v_mul(skip, vc);
        }
    }
    for (int i = 0; i < dk; i++) {
        vf now[COLUMNS];
        UNROLL for (int c = 0; c < n_col; c++) now[c] = v_load(from[c] + (size_t)i * STATE_STRIP);
        UNROLL for (int j = 0; j < n; j++)
        {
            const vf kj = v_set1(k[j][i]), qj = v_set1(q[j][i]);
            const vf stays = by_row ? v_set1(fade[j][i]) : keep[j];
            UNROLL for (int c = 0; c < n_col; c++)
            {
                now[c] = v_fma(kj, u[j][c], v_mul(stays, now[c]));
                out[j][c] = v_fma(now[c], qj, out[j][c]);
            }
        }
        UNROLL for (int c = 0; c < n_col; c++) v_store(to[c] + (size_t)i * STATE_STRIP, now[c]);
    }
    UNROLL for (int j = 0; j < n; j++)
    {
        float *o = r->out + (t + j) * r->out_stride + (int64_t)h * r->dv + col;
        UNROLL for (int c = 0; c < n_col; c++) store_some(o + c * VW, out[j][c], s->n[c]);
    }
}

VEC_INLINE void adding_columns(const struct recurrence *r, int h, int col, int n_col)
{
    struct state_columns s = columns_of(r, h, col, n_col);
    int64_t t = 0;

    if (!r->n_tok)
        copy_columns(r, &s, n_col);
    for (; t + TOKENS <= r->n_tok; t += TOKENS) {
        adding_pass(r, h, col, n_col, t, TOKENS, &s);
        for (int c = 0; c < n_col; c++)
            s.from[c] = s.to[c];
    }
    for (; t < r->n_tok; t++) {
        adding_pass(r, h, col, n_col, t, 1, &s);
        for (int c = 0; c < n_col; c++)
            s.from[c] = s.to[c];
    }
}

VEC_INLINE void columns(const struct recurrence *r, int h, int col, int n_col, int erase,
                        int by_row)
{
    if (erase)
        erasing_columns(r, h, col, n_col, by_row);
    else
        adding_columns(r, h, col, n_col);
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
        all_columns(r, h, from, n, 0, 0);
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
