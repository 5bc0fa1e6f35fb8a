/* SPDX-License-Identifier: MIT */
/* peak_avx512.c - the peak of AVX-512 with VNNI and BF16: twelve accumulators hide the latency. */
#include <immintrin.h>

#include "peak_read.h"

static int64_t int8(int n)
{
    __m512i s[12], w = _mm512_set1_epi8(1);

#pragma GCC unroll 12
    for (int i = 0; i < 12; i++)
        s[i] = _mm512_setzero_si512();
    for (int k = 0; k < n; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            s[i] = _mm512_dpbusd_epi32(s[i], w, w);
            PEAK_KEEP("v", s[i]);
        }
    return (int64_t)n * 12 * 64 * 2;
}

static int64_t bf16(int n)
{
    const __m512bh w = (__m512bh)_mm512_set1_epi16(0x3f00); /* 1/2 */
    __m512 s[12];

#pragma GCC unroll 12
    for (int i = 0; i < 12; i++)
        s[i] = _mm512_setzero_ps();
    for (int k = 0; k < n; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            s[i] = _mm512_dpbf16_ps(s[i], w, w);
            PEAK_KEEP("v", s[i]);
        }
    return (int64_t)n * 12 * 32 * 2;
}

static int64_t f32(int n)
{
    __m512 s[12], w = _mm512_set1_ps(0.5f);

#pragma GCC unroll 12
    for (int i = 0; i < 12; i++)
        s[i] = w;
    for (int k = 0; k < n; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            s[i] = _mm512_fmadd_ps(s[i], w, w);
            PEAK_KEEP("v", s[i]);
        }
    return (int64_t)n * 12 * 16 * 2;
}

const struct kern_peak cb_peak_avx512 = { read_all, read_blocks, f32, bf16, int8 };
