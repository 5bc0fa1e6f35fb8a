/* SPDX-License-Identifier: MIT */
/* mm_avx512.c - matrix products of 16 rows x 4 columns a register; built without VNNI and with it.
 * Few tokens multiply the packed weights as they stream by; many multiply a panel of 32 rows x
 * MM_TILE tokens, where a broadcast of four activations serves two registers of weights. */
#include <immintrin.h>
#include <string.h>

#include "kern_mm.h"
#include "mm_dot_avx512.h"

#define MM_GROUPS 2
#include "mm_table.h"

#include "mm_block_avx512.h"
#include "mm_quantize_avx512.h"

/* sum[group] = zero + w x, columns 4 * g0 .. 4 * (g0 + n_g) - 1; 16-bit: plus 256 times w times the
 * high codes, which precede x */
INLINE void products(enum mm_panel kind, int act16, int groups, __m512i zero, const struct block *w,
                     const uint8_t *x, int g0, int n_g, __m512i sum[2])
{
    __m512i high[2], part[2], high_part[2];

#pragma GCC unroll 2
    for (int k = 0; k < groups; k++) {
        sum[k] = zero;
        high[k] = _mm512_setzero_si512();
    }
#pragma GCC unroll 8
    for (int g = g0; g < g0 + n_g; g++) {
        __m512i v = bcast(x + 4 * g), h = act16 ? bcast(x - 32 + 4 * g) : v;
        if (groups > 1) /* one broadcast into a register, not a memory operand for each group */
            __asm__("" : "+v"(v), "+v"(h));
#pragma GCC unroll 2
        for (int k = 0; k < groups; k++) {
            add_columns(kind, g, w[k].w[g], v, &part[k], &sum[k]);
            if (act16)
                add_columns(kind, g, w[k].w[g], h, &high_part[k], &high[k]);
        }
    }
#pragma GCC unroll 2
    for (int k = 0; act16 && k < groups; k++)
        sum[k] = _mm512_add_epi32(sum[k], _mm512_slli_epi32(high[k], 8));
}

/* acc[group] += a block of each group times token i; rec is the record of n tokens. */
INLINE void block_token(enum dtype t, int groups, const struct block *w, const uint8_t *rec, int i,
                        int n, int act16, __m512 acc[2])
{
    const enum mm_panel kind = mm_layout[t].panel;
    const int two = mm_has_two(kind), min = mm_has_min(kind);
    const uint8_t *neg = rec + (two ? 44 : 40) * n + 4 * i;
    const __m512 d = bcast_f(rec + 32 * n + 4 * i);
    __m512i sum[2], sum2[2];

    products(kind, act16, groups, start_sum(zero_of(t), neg), w, rec + 32 * i, 0, two ? 4 : 8, sum);
    if (two)
        products(kind, act16, groups, start_sum(zero_of(t), neg + 4 * n), w, rec + 32 * i, 4, 4,
                 sum2);
#pragma GCC unroll 2
    for (int k = 0; k < groups; k++) {
        if (two)
            acc[k] = add_block16(kind, acc[k], sum[k], sum2[k], &w[k].s, neg, n, d);
        else
            acc[k] = add_block(acc[k], sum[k], w[k].s.s[0], d);
        if (min)
            acc[k] = _mm512_fmadd_ps(w[k].s.m[0], bcast_f(rec + 36 * n + 4 * i), acc[k]);
    }
}

/* 16-bit: the record of two holds one token. all: of prefetch_block() */
INLINE void direct_of(enum dtype t, int n, int act16, int all, const uint8_t *w, const uint8_t *x,
                      int n_in, float *out)
{
    __m512 acc[4] = { _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                      _mm512_setzero_ps() };

    for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
        const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
        const uint8_t *q = w + mm_scale_bytes(t, nb);
        struct block v;

        chunk_scales(t, w, &v.s);
        for (int b = 0; b < nb; b++) {
            prefetch_block(t, all, w, b);
            open_block(t, w, b, q, &v);
#pragma GCC unroll 4
            for (int i = act16; i < n; i++)
                block_token(t, 1, &v, x, i, n, act16, acc + i);
            q += 64 * mm_layout[t].lines;
            x += mm_rec_bytes(n);
        }
        w = q;
    }
#pragma GCC unroll 4
    for (int i = act16; i < n; i++)
        _mm512_storeu_ps(out + 16 * (i - act16), acc[i]);
}

INLINE void direct(enum dtype t, int n, int act16, const uint8_t *w, const uint8_t *x, int n_in,
                   float *out)
{
    direct_of(t, n, act16, 0, w, x, n_in, out);
}

static void q8_all_lines(const void *w, const void *x, int n_in, float *out)
{
    direct_of(DT_Q8_0, 2, 1, 1, w, x, n_in, out);
}

/* Prefetches the b-th block of the chunk at w. While a batch multiplies a block, the hardware
 * prefetcher falls behind: hence all lines. After the end of `groups` adjacent groups come the
 * next ones. */
INLINE void prefetch_batch(enum dtype t, int groups, const uint8_t *w, size_t step,
                           const uint8_t *end, int b)
{
    w += (size_t)b * mm_block_bytes(t);
    prefetch(w + (w + MM_AHEAD < end ? 0 : (size_t)(groups - 1) * step), mm_layout[t].lines + 1);
}

/* Unpacks each block once, into registers, and multiplies it with all tokens. A broadcast of four
 * activations serves two groups. */
INLINE void batch(enum dtype t, int groups, int act16, const uint8_t *w, size_t step,
                  const uint8_t *x, int n_in, int n_tok, float *out)
{
    const uint8_t *const end = w + step;

    for (int i = 0; i < groups * n_tok; i++)
        _mm512_storeu_ps(out + 16 * i, _mm512_setzero_ps());
    for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
        const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
        const uint8_t *q = w + mm_scale_bytes(t, nb);
        struct block v[2];

#pragma GCC unroll 2
        for (int k = 0; k < groups; k++)
            chunk_scales(t, w + (size_t)k * step, &v[k].s);
        for (int b = 0; b < nb; b++) {
#pragma GCC unroll 2
            for (int k = 0; k < groups; k++) {
                const size_t at = (size_t)k * step;
                prefetch_batch(t, groups, w + at, step, end + at, b);
                open_block(t, w + at, b, q + at, &v[k]);
            }
            for (int i = 0; i < n_tok; i++, x += mm_rec_bytes(1 + act16)) {
                float *const o[2] = { out + 16 * i, out + 16 * (n_tok + i) };
                __m512 acc[2];
#pragma GCC unroll 2
                for (int k = 0; k < groups; k++)
                    acc[k] = _mm512_loadu_ps(o[k]);
                block_token(t, groups, v, x, act16, 1 + act16, act16, acc);
#pragma GCC unroll 2
                for (int k = 0; k < groups; k++)
                    _mm512_storeu_ps(o[k], acc[k]);
            }
            q += 64 * mm_layout[t].lines;
        }
        w = q;
    }
}

INLINE void unpack(enum dtype t, const void *const *groups, int n_in, uint8_t *panel)
{
    unpack_to(t, panel_zero(mm_layout[t].panel), groups, n_in, panel);
}

/* Columns 4 * g0 .. 4 * g0 + 15 of 32 rows times n tokens. */
INLINE void panel_dot(enum mm_panel kind, const uint8_t *w, const uint8_t *x, int g0, int n,
                      __m512i part[2 * MM_TILE], __m512i sum[2 * MM_TILE])
{
#pragma GCC unroll 4
    for (int g = g0; g < g0 + 4; g++) {
        const __m512i w0 = load(w + 128 * g), w1 = load(w + 128 * g + 64);
#pragma GCC unroll 6
        for (int i = 0; i < n; i++) {
            __m512i v = bcast(x + 32 * i + 4 * g);
            __asm__("" : "+v"(v)); /* one broadcast into a register, not two memory operands */
            add_columns(kind, g, w0, v, &part[2 * i], &sum[2 * i]);
            add_columns(kind, g, w1, v, &part[2 * i + 1], &sum[2 * i + 1]);
        }
    }
}

INLINE void panel_start(enum mm_panel kind, const uint8_t *neg_sum, int n, __m512i sum[2 * MM_TILE])
{
#pragma GCC unroll 6
    for (int i = 0; i < n; i++)
        sum[2 * i] = sum[2 * i + 1] = start_sum(panel_zero(kind), neg_sum + 4 * i);
}

/* Adds the minima of both halves of the columns as add_block16 does */
INLINE __m512 panel_minima(const uint8_t *m, const uint8_t *neg_sum, int n, __m512 a)
{
    a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(bcast(neg_sum)), _mm512_loadu_ps(m), a);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(bcast(neg_sum + 4 * n)), _mm512_loadu_ps(m + 128), a);
}

INLINE void panel(enum mm_panel kind, int n, const uint8_t *w, const uint8_t *x, int n_in,
                  float *out)
{
    __m512 acc[2 * MM_TILE];
    __m512i sum[2 * MM_TILE], sum16[2 * MM_TILE];
    __m512 part[2 * MM_TILE];

#pragma GCC unroll 12
    for (int i = 0; i < 2 * n; i++)
        acc[i] = _mm512_setzero_ps();
    for (int b = 0; b < n_in / 32; b++, w += panel_block(kind), x += mm_rec_bytes(n)) {
        const __m512 s0 = _mm512_loadu_ps(w + 1024), s1 = _mm512_loadu_ps(w + 1088);

        panel_start(kind, x + (mm_has_two(kind) ? 44 : 40) * n, n, sum);
        panel_dot(kind, w, x, 0, n, sum16, sum);
        if (!mm_has_two(kind)) {
            panel_dot(kind, w, x, 4, n, sum16, sum);
        } else {
            const __m512 s2 = _mm512_loadu_ps(w + 1152), s3 = _mm512_loadu_ps(w + 1216);
#pragma GCC unroll 12
            for (int i = 0; i < 2 * n; i++)
                part[i] = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i]), i & 1 ? s1 : s0);
            panel_start(kind, x + 48 * n, n, sum);
            panel_dot(kind, w, x, 4, n, sum16, sum);
#pragma GCC unroll 12
            for (int i = 0; i < 2 * n; i++) {
                part[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i]), i & 1 ? s3 : s2, part[i]);
                if (kind == MM_MIN16)
                    part[i] =
                        panel_minima(w + 1280 + 64 * (i & 1), x + 44 * n + 4 * (i / 2), n, part[i]);
                acc[i] = _mm512_fmadd_ps(part[i], bcast_f(x + 32 * n + 4 * (i / 2)), acc[i]);
            }
            continue;
        }
#pragma GCC unroll 12
        for (int i = 0; i < 2 * n; i++)
            acc[i] = add_block(acc[i], sum[i], i & 1 ? s1 : s0, bcast_f(x + 32 * n + 4 * (i / 2)));
        if (mm_has_min(kind)) {
            const __m512 m0 = _mm512_loadu_ps(w + 1152), m1 = _mm512_loadu_ps(w + 1216);
#pragma GCC unroll 12
            for (int i = 0; i < 2 * n; i++)
                acc[i] =
                    _mm512_fmadd_ps(i & 1 ? m1 : m0, bcast_f(x + 36 * n + 4 * (i / 2)), acc[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < 2 * n; i++)
        _mm512_storeu_ps(out + 16 * i, acc[i]);
}

/* Float weights: two chains of additions (even and odd columns), joined at the end. */
INLINE __m512 load_row(enum dtype t, const uint8_t *w, int k)
{
    if (t == DT_F32)
        return _mm512_loadu_ps(w + 64 * (size_t)k);
    if (t == DT_F16)
        return load_f16(w + 32 * (size_t)k);
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(w + 32 * (size_t)k))), 16));
}

INLINE void direct_float(enum dtype t, int n, const uint8_t *w, const float *x, int n_in,
                         float *out)
{
    __m512 acc[2][MM_TILE];
    int k = 0;

#pragma GCC unroll 6
    for (int i = 0; i < n; i++)
        acc[0][i] = acc[1][i] = _mm512_setzero_ps();
    for (; k + 1 < n_in; k += 2) {
        const __m512 w0 = load_row(t, w, k), w1 = load_row(t, w, k + 1);
        if (n <= 2)
            prefetch(w + (t == DT_F32 ? 64 : 32) * (size_t)k, t == DT_F32 ? 2 : 1);
#pragma GCC unroll 6
        for (int i = 0; i < n; i++) {
            acc[0][i] = _mm512_fmadd_ps(w0, _mm512_set1_ps(x[(size_t)k * n + i]), acc[0][i]);
            acc[1][i] = _mm512_fmadd_ps(w1, _mm512_set1_ps(x[(size_t)(k + 1) * n + i]), acc[1][i]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < n; i++) {
        if (k < n_in)
            acc[0][i] =
                _mm512_fmadd_ps(load_row(t, w, k), _mm512_set1_ps(x[(size_t)k * n + i]), acc[0][i]);
        _mm512_storeu_ps(out + 16 * i, _mm512_add_ps(acc[0][i], acc[1][i]));
    }
}

MM_DEFINE_DIRECT
MM_DEFINE_PANEL

const struct kern_mm MM_AVX512 = {
    .tile = MM_TILE,
    .direct_max = 4,
    .panel_rows = 32,
    .quantize = quantize,
    .quantize_batch = quantize_act16,
    .q8_all_lines = q8_all_lines,
    MM_DIRECT_TABLE,
    MM_PANEL_TABLE,
};
