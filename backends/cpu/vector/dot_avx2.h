/* SPDX-License-Identifier: MIT */
/* dot_avx2.h - products of integers that are added in 32 bits, with AVX2 and, where the build has
 * it, VNNI: AVX-VNNI, or the same instructions as AVX-512 encodes them, which tests use on machines
 * that have only those. */
#ifndef DOT_AVX2_H
#define DOT_AVX2_H

#include <immintrin.h>

#define DOT_INLINE static inline __attribute__((always_inline, unused))

#if defined __AVXVNNI__
#define DOT_AVX2_VNNI
#define DOT_VNNI(op) _mm256_##op##_avx_epi32
#elif defined __AVX512VNNI__ && defined __AVX512VL__
#define DOT_AVX2_VNNI
#define DOT_VNNI(op) _mm256_##op##_epi32
#endif

#ifdef DOT_AVX2_VNNI
/* sum + products of pairs of 16-bit integers */
DOT_INLINE __m256i cb_dot_words(__m256i sum, __m256i x, __m256i y)
{
    return DOT_VNNI(dpwssd)(sum, x, y);
}

/* sum + products of four bytes, unsigned x and signed y */
DOT_INLINE __m256i cb_dot_bytes(__m256i sum, __m256i x, __m256i y)
{
    return DOT_VNNI(dpbusd)(sum, x, y);
}
#else
DOT_INLINE __m256i cb_dot_words(__m256i sum, __m256i x, __m256i y)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, y));
}
#endif

#endif
