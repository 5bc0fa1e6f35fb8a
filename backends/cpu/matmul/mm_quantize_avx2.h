/* SPDX-License-Identifier: MIT */
/* mm_quantize_avx2.h - for mm_avx2.c alone: activations become records (kern_mm.h), several tokens
 * at once, as in mm_quantize_avx512.h. */
#ifndef MM_QUANTIZE_AVX2_H
#define MM_QUANTIZE_AVX2_H

#include <immintrin.h>

#include "mm_code_sums.h"
#include "mm_table.h"

INLINE float reduce_max(__m256 v)
{
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_shuffle_ps(a, a, 1)));
}

INLINE int32_t reduce_add(__m256i v)
{
    __m128i a = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}

/* 32 numbers in four registers -> bytes in order */
INLINE __m256i to_bytes(const __m256i q[4])
{
    const __m256i p =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(p, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* One block: q = round(x * 127 / max|x|), d = max|x| / 127; all zero when that would overflow. */
static void quantize_block(const float *x, int i, int n, uint8_t *rec)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 v[4], m = _mm256_setzero_ps(), inv;
    __m256i q[4];
    int32_t sum[2], *neg = (int32_t *)(void *)(rec + 40 * n);
    float amax, *f = (float *)(void *)(rec + 32 * n);

    for (int j = 0; j < 4; j++) {
        v[j] = _mm256_loadu_ps(x + 8 * j);
        m = _mm256_max_ps(m, _mm256_andnot_ps(sign, v[j]));
    }
    amax = reduce_max(m);
    inv = _mm256_set1_ps(amax > 1e-30f ? 127 / amax : 0);
    for (int j = 0; j < 4; j++)
        q[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], inv));
    sum[0] = reduce_add(_mm256_add_epi32(q[0], q[1]));
    sum[1] = reduce_add(_mm256_add_epi32(q[2], q[3]));
    _mm256_storeu_si256((__m256i *)(rec + 32 * i), to_bytes(q));
    f[i] = amax > 1e-30f ? amax / 127 : 0;
    f[n + i] = f[i] * (float)(sum[0] + sum[1]);
    neg[i] = -(sum[0] + sum[1]);
    neg[n + i] = -sum[0];
    neg[2 * n + i] = -sum[1];
}

/* Number i: the largest number of v[i] */
INLINE __m128 tops(const __m256 v[4])
{
    const __m256 a = _mm256_max_ps(_mm256_permute2f128_ps(v[0], v[1], 0x20),
                                   _mm256_permute2f128_ps(v[0], v[1], 0x31));
    const __m256 b = _mm256_max_ps(_mm256_permute2f128_ps(v[2], v[3], 0x20),
                                   _mm256_permute2f128_ps(v[2], v[3], 0x31));
    __m256 all = _mm256_max_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));

    all = _mm256_max_ps(all, _mm256_permute_ps(all, 0x4e));
    return _mm_unpacklo_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}

/* quantize_block() of tokens i..i+3 of n; those of x are n_in numbers apart. */
INLINE void quantize_four(const float *x, size_t n_in, int i, int n, uint8_t *rec)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m128 most = _mm_set1_ps(127);
    __m256 top[4];
    __m256i code[4], sums;
    _Alignas(16) float inv[4];
    float *f = (float *)(void *)(rec + 32 * n) + i;
    int32_t *neg = (int32_t *)(void *)(rec + 40 * n) + i;
    __m128 all, fits, d;
    __m128i first, second, sum;

#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        const float *at = x + (size_t)k * n_in;
        top[k] = _mm256_andnot_ps(sign, _mm256_loadu_ps(at));
        for (int j = 1; j < 4; j++)
            top[k] = _mm256_max_ps(top[k], _mm256_andnot_ps(sign, _mm256_loadu_ps(at + 8 * j)));
    }
    all = tops(top);
    fits = _mm_cmpgt_ps(all, _mm_set1_ps(1e-30f));
    _mm_store_ps(inv, _mm_and_ps(fits, _mm_div_ps(most, all)));
    d = _mm_and_ps(fits, _mm_div_ps(all, most));
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        const float *at = x + (size_t)k * n_in;
        const __m256 by = _mm256_set1_ps(inv[k]);
        __m256i q[4];
        for (int j = 0; j < 4; j++)
            q[j] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(at + 8 * j), by));
        code[k] = to_bytes(q);
        _mm256_storeu_si256((__m256i *)(rec + 32 * (i + k)), code[k]);
    }
    sums = code_sums(code);
    first = _mm256_castsi256_si128(sums);
    second = _mm256_extracti128_si256(sums, 1);
    sum = _mm_add_epi32(first, second);
    _mm_storeu_ps(f, d);
    _mm_storeu_ps(f + n, _mm_mul_ps(d, _mm_cvtepi32_ps(sum)));
    _mm_storeu_si128((__m128i *)neg, _mm_sub_epi32(_mm_setzero_si128(), sum));
    _mm_storeu_si128((__m128i *)(neg + n), _mm_sub_epi32(_mm_setzero_si128(), first));
    _mm_storeu_si128((__m128i *)(neg + 2 * n), _mm_sub_epi32(_mm_setzero_si128(), second));
}

static void quantize(const float *x, int width, int n_in, void *rec, size_t step)
{
    const size_t n = (size_t)n_in;

    for (int b = 0; b < n_in / 32; b++) {
        uint8_t *to = (uint8_t *)rec + (size_t)b * step;
        int i = 0;
        for (; i + 4 <= width; i += 4)
            quantize_four(x + (size_t)i * n + 32 * b, n, i, width, to);
        for (; i < width; i++)
            quantize_block(x + (size_t)i * n + 32 * b, i, width, to);
    }
}

/* 8 numbers as 8-bit codes and codes of their remainders. NaN becomes 0, so that it cannot turn
 * into a large code. */
INLINE void act16_codes(__m256 x, __m256 inv, __m256i *high, __m256i *low)
{
    const __m256i most = _mm256_set1_epi32(127), least = _mm256_set1_epi32(-127);
    __m256 v = _mm256_mul_ps(x, inv), h;

    v = _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q));
    h = _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    *high = _mm256_cvtps_epi32(h);
    *low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_sub_ps(v, h), _mm256_set1_ps(256)));
    *low = _mm256_max_epi32(_mm256_min_epi32(*low, most), least);
}

/* 16 numbers in two registers -> words; within each four the order is 0, 2, 1, 3 */
INLINE __m256i to_words(__m256i a, __m256i b)
{
    const __m256i p = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    return _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(p, 0xd8), 0xd8);
}

/* Quantises one block; all codes are 0 where 127 / top would overflow. words: one 16-bit code a
 * number instead of all high codes, then all low codes. */
INLINE void quantize_act16_block(const float *x, int words, uint8_t *rec)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 v[4], m = _mm256_setzero_ps(), inv;
    __m256i high[4], low[4], both[4];
    float top, step;
    int32_t sum[2];

    for (int j = 0; j < 4; j++) {
        v[j] = _mm256_loadu_ps(x + 8 * j);
        m = _mm256_max_ps(m, _mm256_andnot_ps(sign, v[j]));
    }
    top = reduce_max(m);
    inv = _mm256_set1_ps(top > 1e-30f ? 127 / top : 0);
    step = top > 1e-30f ? top / 127 / 256 : 0;
    for (int j = 0; j < 4; j++) {
        act16_codes(v[j], inv, &high[j], &low[j]);
        both[j] = _mm256_add_epi32(_mm256_slli_epi32(high[j], 8), low[j]);
    }
    for (int j = 0; j < 2; j++)
        sum[j] = reduce_add(_mm256_add_epi32(both[2 * j], both[2 * j + 1]));
    _mm256_storeu_si256((__m256i *)rec, words ? to_words(both[0], both[1]) : to_bytes(high));
    _mm256_storeu_si256((__m256i *)(rec + 32), words ? to_words(both[2], both[3]) : to_bytes(low));
    end_act16(rec, step, sum[0], sum[1]);
}

static void quantize_act16(const float *x, int n_in, void *rec, size_t step)
{
    for (int b = 0; b < n_in / 32; b++)
        quantize_act16_block(x + 32 * b, 0, (uint8_t *)rec + (size_t)b * step);
}

static void quantize_words(const float *x, int n_in, void *rec, size_t step)
{
    for (int b = 0; b < n_in / 32; b++)
        quantize_act16_block(x + 32 * b, 1, (uint8_t *)rec + (size_t)b * step);
}

#endif
