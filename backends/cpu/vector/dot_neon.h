/* SPDX-License-Identifier: MIT */
/* dot_neon.h - dot products of bytes with a part of a register that a loop names. */
#ifndef DOT_NEON_H
#define DOT_NEON_H

#include <arm_neon.h>

/* acc[i] += w[4i..] . x[4 lane..], for 4 bytes each; the lane is a constant once loops are unrolled
 */
static inline __attribute__((always_inline)) int32x4_t cb_dot_lane(int32x4_t acc, int8x16_t w,
                                                                   int8x16_t x, int lane)
{
    switch (lane) {
    case 0:
        return vdotq_laneq_s32(acc, w, x, 0);
    case 1:
        return vdotq_laneq_s32(acc, w, x, 1);
    case 2:
        return vdotq_laneq_s32(acc, w, x, 2);
    default:
        return vdotq_laneq_s32(acc, w, x, 3);
    }
}

#endif
