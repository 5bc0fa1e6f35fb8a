/* SPDX-License-Identifier: MIT */
/* peak_avx512.c - the peak of AVX-512 with VNNI and BF16. */
#include <immintrin.h>

#include "peak_read.h"

#define HALVES ((__m512bh)_mm512_set1_epi16(0x3f00)) /* 1/2 as bf16 */

PEAK_SPIN(int8, "v", __m512i, 12, _mm512_setzero_si512(), __m512i, _mm512_set1_epi8(1), 64,
          _mm512_dpbusd_epi32)
PEAK_SPIN(bf16, "v", __m512, 12, _mm512_setzero_ps(), __m512bh, HALVES, 32, _mm512_dpbf16_ps)
PEAK_SPIN(f32, "v", __m512, 12, _mm512_set1_ps(0.5f), __m512, _mm512_set1_ps(0.5f), 16,
          _mm512_fmadd_ps)

const struct kern_peak cb_peak_avx512 = { read_all, read_blocks, f32, bf16, int8 };
