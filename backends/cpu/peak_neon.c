/* SPDX-License-Identifier: MIT */
/* peak_neon.c - the peak of ARMv8.2's floats and dot products. */
#include <arm_neon.h>

#include "peak_read.h"

static int64_t int8(int n)
{
    int32x4_t s[16];
    const int8x16_t w = vdupq_n_s8(1);

#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        s[i] = vdupq_n_s32(0);
    for (int k = 0; k < n; k++)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            s[i] = vdotq_s32(s[i], w, w);
            PEAK_KEEP("w", s[i]);
        }
    return (int64_t)n * 16 * 16 * 2;
}

static int64_t f32(int n)
{
    float32x4_t s[16];
    const float32x4_t w = vdupq_n_f32(0.5f);

#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        s[i] = w;
    for (int k = 0; k < n; k++)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            s[i] = vfmaq_f32(s[i], w, w);
            PEAK_KEEP("w", s[i]);
        }
    return (int64_t)n * 16 * 4 * 2;
}

const struct kern_peak cb_peak_neon = { read_all, read_blocks, f32, NULL, int8 };
