/* SPDX-License-Identifier: MIT */
/* dot_avx512.h - products of integers that are added in 32 bits, with AVX-512 and, where the build
 * has it, VNNI. In assembler: compilers copy every sum of a tile at each step. */
#ifndef DOT_AVX512_H
#define DOT_AVX512_H

#include <immintrin.h>

#ifdef __AVX512VNNI__
/* acc += products of pairs of 16-bit integers */
static inline void cb_dot_i16(__m512i *acc, __m512i x, __m512i y)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(*acc) : "v"(x), "v"(y));
}

/* acc += products of four bytes */
static inline void cb_dot_bytes(__m512i *acc, __m512i unsigned_x, __m512i y)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*acc) : "v"(unsigned_x), "v"(y));
}

static inline void cb_dot_u8_i8(__m512i *acc, __m512i x, const int32_t *y)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(*acc) : "v"(x), "m"(*y));
}
#else
static inline void cb_dot_i16(__m512i *acc, __m512i x, __m512i y)
{
    *acc = _mm512_add_epi32(*acc, _mm512_madd_epi16(x, y));
    __asm__("" : "+v"(*acc)); /* product by product: those kept alive would spill sums to memory */
}
#endif

#endif
