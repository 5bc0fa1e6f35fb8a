/* SPDX-License-Identifier: MIT */
/* mm_dot_avx512.h - for mm_avx512.c alone: 16 x 4 products of bytes, with VNNI where the build has
 * it. Both forms give the same sums. Without VNNI a sum of 16 bits takes as many products as fit,
 * then it is widened. */
#ifndef MM_DOT_AVX512_H
#define MM_DOT_AVX512_H

#include <immintrin.h>

#include "mm_runs.h"

#ifdef __AVX512VNNI__
#define MM_AVX512   cb_mm_avx512vnni
#define MM_TILE     6
#define SIGNED_ZERO 128 /* signed codes become unsigned */

/* The code of weight 0 in a panel. Panels of symmetric codes are alike. */
static inline __attribute__((always_inline)) int panel_zero(enum mm_panel kind)
{
    return mm_has_min(kind) ? 0 : 128;
}

/* sum += columns 4g..4g+3 of 16 rows, w, times a token's, x. part: 16-bit sums */
static inline __attribute__((always_inline)) void
add_columns(enum mm_panel kind, int g, __m512i w, __m512i x, __m512i *part, __m512i *sum)
{
    (void)kind, (void)g, (void)part;
    *sum = _mm512_dpbusd_epi32(*sum, w, x);
}
#else
#define MM_AVX512   cb_mm_avx512
#define MM_TILE     4
#define SIGNED_ZERO 0

static inline __attribute__((always_inline)) int panel_zero(enum mm_panel kind)
{
    return mm_run_zero(kind);
}

/* u8 x i8 -> pairs; the signs of signed weights move to the activations */
static inline __attribute__((always_inline)) __m512i multiply(enum mm_panel kind, __m512i w,
                                                              __m512i x)
{
    if (mm_is_signed(kind)) {
        x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
        w = _mm512_abs_epi8(w);
    }
    return _mm512_maddubs_epi16(w, x);
}

static inline __attribute__((always_inline)) void
add_columns(enum mm_panel kind, int g, __m512i w, __m512i x, __m512i *part, __m512i *sum)
{
    const int run = mm_run(kind);
    const __m512i p = multiply(kind, w, x);

    *part = g % run ? _mm512_add_epi16(*part, p) : p;
    if (g % run == run - 1)
        *sum = _mm512_add_epi32(*sum, _mm512_madd_epi16(*part, _mm512_set1_epi16(1)));
}
#endif

#endif
