/* SPDX-License-Identifier: MIT */
/* mm_dot_avx2.h - for mm_avx2.c alone: 8 x 4 products of bytes, with AVX-VNNI where the build has
 * it. Both forms give the same sums. Without VNNI a sum of 16 bits takes as many products as fit,
 * then it is widened. */
#ifndef MM_DOT_AVX2_H
#define MM_DOT_AVX2_H

#include "cpu/vector/dot_avx2.h"
#include "mm_runs.h"

#ifdef DOT_AVX2_VNNI
#define MM_AVX2     cb_mm_avxvnni
#define SIGNED_ZERO 128 /* signed codes become unsigned */

/* The code of weight 0 in a panel */
DOT_INLINE int panel_zero(enum mm_panel kind)
{
    return mm_has_min(kind) || kind == MM_MIN16 ? 0 : 128;
}

/* sum += columns 4g..4g+3 of 8 rows, w, times a token's, x. part: 16-bit sums */
DOT_INLINE void add_four(enum mm_panel kind, int g, __m256i w, __m256i x, __m256i *part,
                         __m256i *sum)
{
    (void)kind, (void)g, (void)part;
    *sum = cb_dot_bytes(*sum, w, x);
}
#else
#define MM_AVX2     cb_mm_avx2
#define SIGNED_ZERO 0

DOT_INLINE int panel_zero(enum mm_panel kind)
{
    return mm_run_zero(kind);
}

/* u8 x i8 -> pairs; the signs of signed weights move to the activations */
DOT_INLINE __m256i multiply(enum mm_panel kind, __m256i w, __m256i x)
{
    if (mm_is_signed(kind))
        return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
}

DOT_INLINE void add_four(enum mm_panel kind, int g, __m256i w, __m256i x, __m256i *part,
                         __m256i *sum)
{
    const int run = mm_run(kind);
    const __m256i p = multiply(kind, w, x);

    *part = g % run ? _mm256_add_epi16(*part, p) : p;
    /* stops the compiler from reordering the additions and keeping all products of a block alive */
    __asm__("" : "+x"(*part));
    if (g % run == run - 1)
        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(*part, _mm256_set1_epi16(1)));
}
#endif

#endif
