/* SPDX-License-Identifier: MIT */
/* mm_act16.h - for mm_ISA.c alone: a generated token's activations as 16-bit records (kern_mm.h),
 * in C, for ISAs without a vector version. */
#ifndef MM_ACT16_H
#define MM_ACT16_H

#include <math.h>
#include <string.h>

#include "mm_table.h"

/* The nearest whole number, for small |x| */
INLINE float nearest(float x)
{
    const float shift = 12582912; /* 1.5 * 2^23 */
    return (x + shift) - shift;
}

/* Largest magnitude of 32 numbers */
INLINE float top_of_block(const float *x)
{
    float top[16];

    for (int i = 0; i < 16; i++) {
        const float a = fabsf(x[i]), b = fabsf(x[16 + i]);
        top[i] = a > b ? a : b;
    }
#pragma GCC unroll 4
    for (int n = 8; n; n /= 2)
        for (int i = 0; i < n; i++)
            top[i] = top[i] > top[n + i] ? top[i] : top[n + i];
    return top[0];
}

INLINE int32_t sum_up(const int32_t *x)
{
    int32_t sum = 0;

    for (int i = 0; i < 16; i++)
        sum += x[i];
    return sum;
}

/* Quantises one block; all codes are 0 where 127 / top would overflow. NaN becomes 0, so that it
 * cannot turn into a large code. */
INLINE void quantize_act16_block(const float *x, uint8_t *rec)
{
    const float top = top_of_block(x), inv = top > 1e-30f ? 127 / top : 0;
    const float step = top > 1e-30f ? top / 127 / 256 : 0;
    int32_t high[32], low[32], both[32];
    int8_t code[64];

    for (int i = 0; i < 32; i++) {
        const float v = x[i] * inv, h = nearest(v), l = nearest((v - h) * 256);
        high[i] = (int32_t)(h == h ? h : 0);
        low[i] = (int32_t)(l < 127 ? l > -127 ? l : -127 : 127);
    }
    for (int i = 0; i < 32; i++)
        both[i] = 256 * high[i] + low[i];
    for (int i = 0; i < 32; i++)
        code[i] = (int8_t)high[i];
    for (int i = 0; i < 32; i++)
        code[32 + i] = (int8_t)low[i];
    memcpy(rec, code, sizeof code);
    end_act16(rec, step, sum_up(both), sum_up(both + 16));
}

static void quantize_act16(const float *x, int n_in, void *rec, size_t step)
{
    for (int b = 0; b < n_in / 32; b++)
        quantize_act16_block(x + 32 * b, (uint8_t *)rec + (size_t)b * step);
}

#endif
