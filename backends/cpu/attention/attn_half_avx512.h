/* SPDX-License-Identifier: MIT */
/* attn_half_avx512.h - the AVX-512 parts of attn_half.c, with panels of 32 keys. */
#ifndef ATTN_HALF_AVX512_H
#define ATTN_HALF_AVX512_H

#include <immintrin.h>

enum { PANEL = 32 };

/* x / step to the nearest whole number, in the low 16 bits */
VEC_INLINE __m512i coded(__m512 x, __m512 inv)
{
    return _mm512_castps_si512(_mm512_fmadd_ps(x, inv, _mm512_set1_ps(12582912.0f)));
}

/* elements [c, c + 16) of x[n], zeros past the end */
VEC_INLINE __m512 part(const float *x, int c, int n)
{
    return c < n ? _mm512_loadu_ps(x + c) : _mm512_setzero_ps();
}

/* x[n] -> pairs of codes; returns the quantisation step */
static float quantize(const float *x, int n, int32_t *y)
{
    __m512 sums = _mm512_setzero_ps(), tops = sums, inv;
    float sum, top, f;

    for (int c = 0; c < n; c += 16) {
        const __m512 u = _mm512_abs_ps(_mm512_loadu_ps(x + c));
        sums = _mm512_add_ps(sums, u);
        tops = _mm512_max_ps(tops, u);
    }
    sum = _mm512_reduce_add_ps(sums);
    top = _mm512_reduce_max_ps(tops);
    f = top > 0 ? fminf(32767 / top, QUERY_SUM / sum) : 1;
    inv = _mm512_set1_ps(f);
    for (int c = 0; c < n; c += 32)
        _mm512_storeu_si512(y + c / 2,
                            cb_i16_pair(coded(part(x, c, n), inv), coded(part(x, c + 16, n), inv)));
    return 1 / f;
}

/* ---- stored rows to codes ---- */

/* 16 stored numbers from c on; zeros past the end */
VEC_INLINE __m512 floats(enum kv_type t, const char *row, int c, int hd)
{
    if (c >= hd)
        return _mm512_setzero_ps();
    return t == KV_F16 ? v_load_f16(row + 2 * c) : v_load_bf16(row + 2 * c);
}

/* The largest magnitude in each of a row's 32 columns (numbers 32 apart), with the sign shifted
 * out: stored halves order like integers */
VEC_INLINE __m512i row_top(const char *row, int hd)
{
    __m512i top = _mm512_setzero_si512();
    int c = 0;

    for (; c + 32 <= hd; c += 32)
        top = _mm512_max_epu16(top, _mm512_slli_epi16(_mm512_loadu_si512(row + 2 * c), 1));
    if (c < hd)
        top = _mm512_max_epu16(top, _mm512_zextsi256_si512(_mm256_slli_epi16(
                                        _mm256_loadu_si256((const void *)(row + 2 * c)), 1)));
    return top;
}

#define TREE(n, LO, HI)                                                                            \
    _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) t[i] =                                     \
        _mm512_max_epu16(LO(t[2 * i], t[2 * i + 1]), HI(t[2 * i], t[2 * i + 1]))
#define LOW_LANES(a, b)  _mm512_shuffle_i64x2(a, b, 0x88)
#define HIGH_LANES(a, b) _mm512_shuffle_i64x2(a, b, 0xdd)

/* The largest magnitudes of 16 rows, as stored, from the results t[16] of row_top() */
VEC_INLINE __m256i tops(__m512i *t)
{
    TREE(8, _mm512_unpacklo_epi16, _mm512_unpackhi_epi16);
    TREE(4, _mm512_unpacklo_epi32, _mm512_unpackhi_epi32);
    TREE(2, _mm512_unpacklo_epi64, _mm512_unpackhi_epi64);
    TREE(1, LOW_LANES, HIGH_LANES);
    t[0] = _mm512_max_epu16(LOW_LANES(t[0], t[0]), HIGH_LANES(t[0], t[0]));
    return _mm256_srli_epi16(_mm512_castsi512_si256(t[0]), 1);
}

/* The quantisation steps of 16 rows, which map a row's largest magnitude to the largest code, and
 * their inverses. Rows are independent. A row with a number that is not finite gets NaN. */
VEC_INLINE void row_steps(enum kv_type t, const char *const *row, int hd, float *step, float *inv)
{
    const __m256i inf = _mm256_set1_epi16(t == KV_F16 ? 0x7c00 : 0x7f80);
    __m512i top[16];
    __m512 d;
    __m256i bits;
    __mmask16 bad, some;

    UNROLL
    for (int i = 0; i < 16; i++)
        top[i] = row_top(row[i], hd);
    bits = tops(top);
    bad = _mm256_cmp_epu16_mask(bits, inf, _MM_CMPINT_NLT);
    d = t == KV_F16 ? _mm512_cvtph_ps(bits)
                    : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    some = _mm512_cmp_ps_mask(d, _mm512_setzero_ps(), _CMP_GT_OQ);
    d = _mm512_mask_mov_ps(_mm512_mul_ps(d, _mm512_set1_ps(1.0f / I16_ROW_TOP)), bad,
                           _mm512_set1_ps(NAN));
    _mm512_storeu_ps(step, d);
    _mm512_storeu_ps(inv, _mm512_maskz_div_ps(some & (__mmask16)~bad, _mm512_set1_ps(1), d));
}

/* 16 keys -> pair[pairs][0..15] of a panel */
VEC_INLINE void pack_keys(enum kv_type t, const char *const *row, int hd, const float *inv, char *y)
{
    vf v[16];

    for (int c = 0; c < hd; c += 32, y += 16 * PANEL * 4) {
        UNROLL
        for (int i = 0; i < 16; i++) {
            const __m512 f = _mm512_set1_ps(inv[i]);
            v[i] = _mm512_castsi512_ps(cb_i16_pair(coded(floats(t, row[i], c, hd), f),
                                                   coded(floats(t, row[i], c + 16, hd), f)));
        }
        v_transpose(v);
        UNROLL
        for (int i = 0; i < 16; i++)
            _mm512_storeu_ps(y + i * PANEL * 4, v[i]);
    }
}

/* Keys [j, j + PANEL) -> a panel's pairs y and step[PANEL] */
VEC_INLINE void pack_panel(enum kv_type t, const struct kern_rows *k, int j, int hd, char *y,
                           float *step)
{
    float inv[16];

    for (int i = 0; i < PANEL; i += 16) {
        prefetch(k, j + i, 16);
        row_steps(t, k->row + j + i, hd, step + i, inv);
        pack_keys(t, k->row + j + i, hd, inv, y + 4 * i);
    }
}

/* ---- logits ---- */

/* ahead: what to prefetch, as many bytes as the panel has */
VEC_INLINE void qk_tile(int m, const char *q, const char *k, const float *step, const char *ahead,
                        int hd, float *s)
{
    __m512i acc[MAX_TILE][2];
    __m512 dk[2];

    UNROLL
    for (int r = 0; r < m; r++)
        acc[r][0] = acc[r][1] = _mm512_setzero_si512();
    _Pragma("GCC unroll 2") for (int c = 0; c < pairs(hd);
                                 c++, q += 4 * m, k += PANEL * 4, ahead += PANEL * 4)
    {
        const __m512i x = _mm512_loadu_si512(k), y = _mm512_loadu_si512(k + 64);
        __builtin_prefetch(ahead, 0, 2);
        __builtin_prefetch(ahead + 64, 0, 2);
        UNROLL
        for (int r = 0; r < m; r++) {
            const __m512i pair = _mm512_set1_epi32(*(const int32_t *)(const void *)(q + 4 * r));
            cb_dot_i16(&acc[r][0], x, pair);
            cb_dot_i16(&acc[r][1], y, pair);
        }
    }
    dk[0] = _mm512_loadu_ps(step);
    dk[1] = _mm512_loadu_ps(step + 16);
    UNROLL
    for (int r = 0; r < m; r++) {
        float d;
        memcpy(&d, q + 4 * r, sizeof d);
        UNROLL
        for (int i = 0; i < 2; i++)
            _mm512_storeu_ps(s + r * KEY_BLOCK + i * 16,
                             _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][i]),
                                           _mm512_mul_ps(dk[i], _mm512_set1_ps(d))));
    }
}

/* ---- values ---- */

/* 32 dims from c on of 16 rows -> pairs of rows */
VEC_INLINE void pack_rows(enum kv_type t, const char *const *row, int c, const float *inv,
                          int16_t *y)
{
    UNROLL
    for (int i = 0; i < 16; i += 2, y += 64) {
        const __m512 f = _mm512_set1_ps(inv[i]), g = _mm512_set1_ps(inv[i + 1]);
        UNROLL
        for (int d = 0; d < 32; d += 16)
            _mm512_storeu_si512(y + 2 * d,
                                cb_i16_pair(coded(floats(t, row[i], c + d, c + 32), f),
                                            coded(floats(t, row[i + 1], c + d, c + 32), g)));
    }
}

#endif
