/* SPDX-License-Identifier: MIT */
/* mm_quantize_avx512.h - for mm_avx512.c alone: activations become records (kern_mm.h). A block's
 * largest magnitude, its division and its sums are short chains of dependent instructions, so a
 * tile's tokens pass through them together. */
#ifndef MM_QUANTIZE_AVX512_H
#define MM_QUANTIZE_AVX512_H

#include <immintrin.h>

#include "mm_code_sums.h"
#include "mm_table.h"

enum { QUANTIZE_MOST = 8 }; /* tokens at once */

/* One block of token i of n: q = round(x * 127 / max|x|), d = max|x| / 127; all zero when that
 * would overflow. */
static void quantize_block(const float *x, int i, int n, uint8_t *rec)
{
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const float amax = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    const int some = amax > 1e-30f;
    const __m512 inv = _mm512_set1_ps(some ? 127 / amax : 0);
    const __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, inv));
    const __m512i qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, inv));
    const int32_t sa = _mm512_reduce_add_epi32(qa), sb = _mm512_reduce_add_epi32(qb);
    const float d = some ? amax / 127 : 0;
    int32_t *neg = (int32_t *)(void *)(rec + 40 * n);
    float *f = (float *)(void *)(rec + 32 * n);

    _mm_storeu_si128((__m128i *)(rec + 32 * i), _mm512_cvtsepi32_epi8(qa));
    _mm_storeu_si128((__m128i *)(rec + 32 * i + 16), _mm512_cvtsepi32_epi8(qb));
    f[i] = d;
    f[n + i] = d * (float)(sa + sb);
    neg[i] = -(sa + sb);
    neg[n + i] = -sa;
    neg[2 * n + i] = -sb;
}

/* Number i: the largest number of v[i] */
INLINE __m256 tops(const __m512 v[QUANTIZE_MOST])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512 two[4], four[2], all;

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        two[i] = _mm512_max_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x44),
                               _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xee));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) /* a quarter a token */
        four[i] = _mm512_max_ps(_mm512_shuffle_f32x4(two[2 * i], two[2 * i + 1], 0x88),
                                _mm512_shuffle_f32x4(two[2 * i], two[2 * i + 1], 0xdd));
    all = _mm512_max_ps(_mm512_unpacklo_ps(four[0], four[1]), _mm512_unpackhi_ps(four[0], four[1]));
    all = _mm512_max_ps(all, _mm512_permute_ps(all, 0x4e));
    return _mm512_castps512_ps256(_mm512_permutexvar_ps(order, all));
}

/* quantize_block() of tokens i..i+m-1 of n, m a constant; those of x are n_in numbers apart. */
INLINE void quantize_blocks(int m, const float *x, size_t n_in, int i, int n, uint8_t *rec)
{
    const __mmask8 some = (__mmask8)((1 << m) - 1);
    __m512 a[QUANTIZE_MOST], b[QUANTIZE_MOST], most[QUANTIZE_MOST];
    __m256i code[QUANTIZE_MOST], first, second, sum;
    _Alignas(32) float inv[QUANTIZE_MOST];
    float *f = (float *)(void *)(rec + 32 * n) + i;
    int32_t *neg = (int32_t *)(void *)(rec + 40 * n) + i;
    __m256 top, d;
    __mmask8 fits;

#pragma GCC unroll 8
    for (int k = 0; k < QUANTIZE_MOST; k++) {
        code[k] = _mm256_setzero_si256();
        most[k] = _mm512_setzero_ps();
        if (k >= m)
            continue;
        a[k] = _mm512_loadu_ps(x + (size_t)k * n_in);
        b[k] = _mm512_loadu_ps(x + (size_t)k * n_in + 16);
        most[k] = _mm512_max_ps(_mm512_abs_ps(a[k]), _mm512_abs_ps(b[k]));
    }
    top = tops(most);
    fits = _mm256_cmp_ps_mask(top, _mm256_set1_ps(1e-30f), _CMP_GT_OQ);
    _mm256_store_ps(inv, _mm256_maskz_div_ps(fits, _mm256_set1_ps(127), top));
    d = _mm256_maskz_div_ps(fits, top, _mm256_set1_ps(127));
#pragma GCC unroll 8
    for (int k = 0; k < m; k++) {
        const __m512 by = _mm512_set1_ps(inv[k]);
        const __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a[k], by));
        const __m512i qb = _mm512_cvtps_epi32(_mm512_mul_ps(b[k], by));
        code[k] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtsepi32_epi8(qa)),
                                          _mm512_cvtsepi32_epi8(qb), 1);
        _mm256_storeu_si256((__m256i *)(rec + 32 * (i + k)), code[k]);
    }
    first = code_sums(code);
    second = m > 4 ? code_sums(code + 4) : _mm256_setzero_si256();
    sum = _mm256_permute2x128_si256(first, second, 0x31);   /* of codes 16..31 */
    first = _mm256_permute2x128_si256(first, second, 0x20); /* of codes 0..15 */
    second = _mm256_sub_epi32(_mm256_setzero_si256(), sum);
    sum = _mm256_add_epi32(first, sum);
    first = _mm256_sub_epi32(_mm256_setzero_si256(), first);
    _mm256_mask_storeu_ps(f, some, d);
    _mm256_mask_storeu_ps(f + n, some, _mm256_mul_ps(d, _mm256_cvtepi32_ps(sum)));
    _mm256_mask_storeu_epi32(neg, some, _mm256_sub_epi32(_mm256_setzero_si256(), sum));
    _mm256_mask_storeu_epi32(neg + n, some, first);
    _mm256_mask_storeu_epi32(neg + 2 * n, some, second);
}

static void quantize(const float *x, int width, int n_in, void *rec, size_t step)
{
    const size_t n = (size_t)n_in;

    for (int b = 0; b < n_in / 32; b++) {
        uint8_t *to = (uint8_t *)rec + (size_t)b * step;
        int i = 0;
        for (; i + 6 <= width; i += 6)
            quantize_blocks(6, x + (size_t)i * n + 32 * b, n, i, width, to);
        for (; i + 4 <= width; i += 4)
            quantize_blocks(4, x + (size_t)i * n + 32 * b, n, i, width, to);
        for (; i < width; i++)
            quantize_block(x + (size_t)i * n + 32 * b, i, width, to);
    }
}

/* 16 numbers as 8-bit codes and codes of their remainders -> both as one number. NaN becomes 0, so
 * that it cannot turn into a large code. */
INLINE __m512i act16_codes(__m512 x, __m512 inv, uint8_t *high, uint8_t *low)
{
    const __m512 product = _mm512_mul_ps(x, inv);
    const __m512 v = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(product, product, _CMP_ORD_Q), product);
    const __m512 h = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT);
    const __m512i most = _mm512_set1_epi32(127), h_code = _mm512_cvtps_epi32(h);
    __m512i l = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_sub_ps(v, h), _mm512_set1_ps(256)));

    l = _mm512_max_epi32(_mm512_min_epi32(l, most), _mm512_set1_epi32(-127));
    _mm_storeu_si128((__m128i *)high, _mm512_cvtepi32_epi8(h_code));
    _mm_storeu_si128((__m128i *)low, _mm512_cvtepi32_epi8(l));
    return _mm512_add_epi32(_mm512_slli_epi32(h_code, 8), l);
}

/* Quantises one block; all codes are 0 where 127 / top would overflow. */
INLINE void quantize_act16_block(const float *x, uint8_t *rec)
{
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    const __m512 inv = _mm512_set1_ps(top > 1e-30f ? 127 / top : 0);
    const float step = top > 1e-30f ? top / 127 / 256 : 0;
    const int32_t sa = _mm512_reduce_add_epi32(act16_codes(a, inv, rec, rec + 32));
    const int32_t sb = _mm512_reduce_add_epi32(act16_codes(b, inv, rec + 16, rec + 48));

    end_act16(rec, step, sa, sb);
}

static void quantize_act16(const float *x, int n_in, void *rec, size_t step)
{
    for (int b = 0; b < n_in / 32; b++)
        quantize_act16_block(x + 32 * b, (uint8_t *)rec + (size_t)b * step);
}

#endif
