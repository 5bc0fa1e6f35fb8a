/* SPDX-License-Identifier: MIT */
/* peak_scalar.c - the peak of plain C, built for the baseline of the architecture: four floats at a
 * time. */
#include "peak_read.h"

typedef float float4 __attribute__((vector_size(16)));

static int64_t f32(int n)
{
    const float4 half = { 0.5f, 0.5f, 0.5f, 0.5f };
    float4 s[8];

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        s[i] = half;
    for (int k = 0; k < n; k++)
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            s[i] = s[i] * half + half;
    __asm__ volatile("" : : "r"(s) : "memory"); /* keeps the compiler from dropping the sums */
    return (int64_t)n * 8 * 4 * 2;
}

const struct kern_peak cb_peak_scalar = { read_all, read_blocks, f32, NULL, NULL };
