/* SPDX-License-Identifier: MIT */
/* attn_half_avx2.h - the AVX2 parts of attn_half.c. Panels have 16 keys; with six rows of queries
 * their sums take 12 of the 16 registers. */
#ifndef ATTN_HALF_AVX2_H
#define ATTN_HALF_AVX2_H

enum { PANEL = 16 };

/* elements [c, c + 8) of x[n], zeros past the end */
VEC_INLINE vf part(const float *x, int c, int n)
{
    return c < n ? v_load(x + c) : v_set1(0.0f);
}

/* x[n] -> pairs of codes; returns the quantisation step */
static float quantize(const float *x, int n, int32_t *y)
{
    vf sums = v_set1(0.0f), tops = sums, inv;
    float sum, top, f;

    for (int c = 0; c < n; c += VW) {
        const vf u = v_abs(v_load(x + c));
        sums = v_add(sums, u);
        tops = v_max(tops, u);
    }
    sum = v_hsum(sums);
    top = v_hmax(tops);
    f = top > 0 ? fminf(32767 / top, QUERY_SUM / sum) : 1;
    inv = v_set1(f);
    for (int c = 0; c < n; c += 32)
        for (int i = c; i < c + 16; i += VW, y += VW)
            _mm256_storeu_si256((void *)y, cb_i16_pair(cb_i16_code(part(x, i, n), inv),
                                                       cb_i16_code(part(x, i + 16, n), inv)));
    return 1 / f;
}

/* ---- stored rows to codes ---- */

/* 8 stored numbers from c on; zeros past the end */
VEC_INLINE vf floats(enum kv_type t, const char *row, int c, int hd)
{
    if (c >= hd)
        return v_set1(0.0f);
    return t == KV_F16 ? v_load_f16(row + 2 * c) : v_load_bf16(row + 2 * c);
}

/* The largest magnitude of a row, as stored: halves without their signs order like integers. The
 * minpos instruction finds the smallest of eight, so it is applied to the complements. */
VEC_INLINE uint16_t row_top(const char *row, int hd)
{
    __m256i top = _mm256_setzero_si256();
    __m128i most;

    for (int c = 0; c < hd; c += 16) {
        const __m256i x = _mm256_loadu_si256((const void *)(row + 2 * c));
        top = _mm256_max_epu16(top, _mm256_slli_epi16(x, 1));
    }
    most = _mm_max_epu16(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    most = _mm_minpos_epu16(_mm_xor_si128(most, _mm_set1_epi32(-1)));
    return (uint16_t)((uint16_t)~_mm_cvtsi128_si32(most) >> 1);
}

/* The quantisation steps of 16 rows, which map a row's largest magnitude to the largest code, and
 * their inverses. Rows are independent. A row with a number that is not finite gets NaN. */
VEC_INLINE void row_steps(enum kv_type t, const char *const *row, int hd, float *step, float *inv)
{
    uint16_t top[PANEL];

    UNROLL
    for (int i = 0; i < PANEL; i++)
        top[i] = row_top(row[i], hd);
    for (int i = 0; i < PANEL; i += VW) {
        const vf d = t == KV_F16 ? v_load_f16(top + i) : v_load_bf16(top + i);
        const vf s = v_mul(d, v_set1(1.0f / I16_ROW_TOP));
        const vf bad = _mm256_cmp_ps(d, v_set1(INFINITY), _CMP_NLT_UQ);
        const vf some = _mm256_cmp_ps(d, v_set1(0.0f), _CMP_GT_OQ);
        v_store(step + i, _mm256_blendv_ps(s, v_set1(NAN), bad));
        v_store(inv + i, _mm256_and_ps(_mm256_andnot_ps(bad, some), v_div(v_set1(1.0f), s)));
    }
}

/* 8 keys -> pair[pairs][0..7] of a panel */
VEC_INLINE void pack_keys(enum kv_type t, const char *const *row, int hd, const float *inv, char *y)
{
    for (int c = 0; c < hd; c += 32)
        for (int h = c; h < c + 16; h += VW, y += VW * PANEL * 4) {
            vf v[VW];
            UNROLL
            for (int i = 0; i < VW; i++) {
                const vf f = v_set1(inv[i]);
                v[i] =
                    _mm256_castsi256_ps(cb_i16_pair(cb_i16_code(floats(t, row[i], h, hd), f),
                                                    cb_i16_code(floats(t, row[i], h + 16, hd), f)));
            }
            v_transpose(v);
            UNROLL
            for (int i = 0; i < VW; i++)
                _mm256_storeu_ps((float *)(void *)(y + i * PANEL * 4), v[i]);
        }
}

/* Keys [j, j + PANEL) -> a panel's pairs y and step[PANEL] */
VEC_INLINE void pack_panel(enum kv_type t, const struct kern_rows *k, int j, int hd, char *y,
                           float *step)
{
    float inv[PANEL];

    prefetch(k, j, PANEL);
    row_steps(t, k->row + j, hd, step, inv);
    for (int i = 0; i < PANEL; i += VW)
        pack_keys(t, k->row + j + i, hd, inv + i, y + 4 * i);
}

/* ---- logits ---- */

/* ahead: what to prefetch, as many bytes as the panel has */
VEC_INLINE void qk_tile(int m, const char *q, const char *k, const float *step, const char *ahead,
                        int hd, float *s)
{
    __m256i acc[MR][2];

    UNROLL
    for (int r = 0; r < m; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    _Pragma("GCC unroll 4") for (int c = 0; c < pairs(hd);
                                 c++, q += 4 * m, k += PANEL * 4, ahead += PANEL * 4)
    {
        const __m256i x = _mm256_loadu_si256((const void *)k);
        const __m256i y = _mm256_loadu_si256((const void *)(k + 32));
        __builtin_prefetch(ahead, 0, 2);
        UNROLL
        for (int r = 0; r < m; r++)
            cb_i16_add(acc[r], x, y, q + 4 * r);
    }
    UNROLL
    for (int r = 0; r < m; r++) {
        float d;
        memcpy(&d, q + 4 * r, sizeof d);
        UNROLL
        for (int i = 0; i < 2; i++)
            v_store(s + r * KEY_BLOCK + i * VW,
                    v_mul(_mm256_cvtepi32_ps(acc[r][i]), v_mul(v_load(step + i * VW), v_set1(d))));
    }
}

/* ---- values ---- */

/* 32 dims from c on of 16 rows -> pairs of rows */
VEC_INLINE void pack_rows(enum kv_type t, const char *const *row, int c, const float *inv,
                          int16_t *y)
{
    UNROLL
    for (int i = 0; i < 16; i += 2, y += 64) {
        const vf f = v_set1(inv[i]), g = v_set1(inv[i + 1]);
        UNROLL
        for (int d = 0; d < 32; d += VW)
            _mm256_storeu_si256((void *)(y + 2 * d),
                                cb_i16_pair(cb_i16_code(floats(t, row[i], c + d, c + 32), f),
                                            cb_i16_code(floats(t, row[i + 1], c + d, c + 32), g)));
    }
}

#endif
