/* SPDX-License-Identifier: MIT */
/* peak_bf16_avx512.c - the peak of AVX-512's products of bf16. */
#include <immintrin.h>

#include "peak_read.h"

#define HALVES ((__m512bh)_mm512_set1_epi16(0x3f00)) /* 1/2 as bf16 */

PEAK_SPIN(bf16, "v", __m512, 12, _mm512_setzero_ps(), __m512bh, HALVES, 32, _mm512_dpbf16_ps)

const struct kern_peak cb_peak_avx512bf16 = { read_all, read_blocks, NULL, bf16, NULL };
