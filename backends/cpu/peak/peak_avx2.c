/* SPDX-License-Identifier: MIT */
/* peak_avx2.c - the peak of AVX2, whose byte products are summed in pairs of 16 bits or, in the
 * build with VNNI, in 32. */
#include "cpu/vector/dot_avx2.h"
#include "peak_read.h"

#ifdef DOT_AVX2_VNNI
#define PEAK_AVX2    cb_peak_avxvnni
#define add_products cb_dot_bytes
#else
#define PEAK_AVX2 cb_peak_avx2

static inline __m256i add_products(__m256i s, __m256i a, __m256i b)
{
    __m256i p = _mm256_maddubs_epi16(a, b);

    PEAK_KEEP("x", p);
    return _mm256_add_epi16(s, p);
}
#endif

/* sums of 16 bits are not widened: code that widens them cannot be faster */
PEAK_SPIN(int8, "x", __m256i, 8, _mm256_setzero_si256(), __m256i, _mm256_set1_epi8(1), 32,
          add_products)
PEAK_SPIN(f32, "x", __m256, 12, _mm256_set1_ps(0.5f), __m256, _mm256_set1_ps(0.5f), 8,
          _mm256_fmadd_ps)

const struct kern_peak PEAK_AVX2 = { read_all, read_blocks, f32, NULL, int8 };
