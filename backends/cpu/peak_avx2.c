/* SPDX-License-Identifier: MIT */
/* peak_avx2.c - the peak of AVX2, which multiplies bytes into pairs of 16 bits. */
#include <immintrin.h>

#include "peak_read.h"

static int64_t int8(int n)
{
    __m256i s[8], w = _mm256_set1_epi8(1);

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        s[i] = _mm256_setzero_si256();
    for (int k = 0; k < n; k++)
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            __m256i p = _mm256_maddubs_epi16(w, w);
            PEAK_KEEP("x", p);
            s[i] = _mm256_add_epi16(s[i], p);
            PEAK_KEEP("x", s[i]);
        }
    return (int64_t)n * 8 * 32 * 2;
}

static int64_t f32(int n)
{
    __m256 s[12], w = _mm256_set1_ps(0.5f);

#pragma GCC unroll 12
    for (int i = 0; i < 12; i++)
        s[i] = w;
    for (int k = 0; k < n; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            s[i] = _mm256_fmadd_ps(s[i], w, w);
            PEAK_KEEP("x", s[i]);
        }
    return (int64_t)n * 12 * 8 * 2;
}

const struct kern_peak cb_peak_avx2 = { read_all, read_blocks, f32, NULL, int8 };
