/* SPDX-License-Identifier: MIT */
/* peak_avx512.c - the peak of AVX-512: of its floats and of its bytes, whose products are summed in
 * pairs of 16 bits or, in the build with VNNI, in 32. */
#include <immintrin.h>

#include "peak_read.h"

#ifdef __AVX512VNNI__
#define PEAK_AVX512 cb_peak_avx512vnni
#define ADD_BYTES   _mm512_dpbusd_epi32
#else
#define PEAK_AVX512 cb_peak_avx512
#define ADD_BYTES   add_products

static inline __m512i add_products(__m512i s, __m512i a, __m512i b)
{
    __m512i p = _mm512_maddubs_epi16(a, b);

    PEAK_KEEP("v", p);
    return _mm512_add_epi16(s, p);
}
#endif

PEAK_SPIN(int8, "v", __m512i, 12, _mm512_setzero_si512(), __m512i, _mm512_set1_epi8(1), 64,
          ADD_BYTES)
PEAK_SPIN(f32, "v", __m512, 12, _mm512_set1_ps(0.5f), __m512, _mm512_set1_ps(0.5f), 16,
          _mm512_fmadd_ps)

const struct kern_peak PEAK_AVX512 = { read_all, read_blocks, f32, NULL, int8 };
