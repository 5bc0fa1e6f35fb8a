/* SPDX-License-Identifier: MIT */
/* mm_code_sums.h - for mm_ISA.c of x86 alone: sums of quantised activations. */
#ifndef MM_CODE_SUMS_H
#define MM_CODE_SUMS_H

#include <immintrin.h>

#include "mm_table.h"

/* Numbers i and 4 + i: the sums of codes 0..15 and 16..31 of c[i] */
INLINE __m256i code_sums(const __m256i c[4])
{
    const __m256i ones = _mm256_set1_epi16(1), one_bytes = _mm256_set1_epi8(1);
    __m256i s[4];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        s[i] = _mm256_madd_epi16(_mm256_maddubs_epi16(one_bytes, c[i]), ones);
    return _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
}

#endif
