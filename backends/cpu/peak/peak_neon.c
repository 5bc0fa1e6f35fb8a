/* SPDX-License-Identifier: MIT */
/* peak_neon.c - the peak of ARMv8.2's floats and dot products. */
#include <arm_neon.h>

#include "peak_read.h"

PEAK_SPIN(int8, "w", int32x4_t, 16, vdupq_n_s32(0), int8x16_t, vdupq_n_s8(1), 16, vdotq_s32)
PEAK_SPIN(f32, "w", float32x4_t, 16, vdupq_n_f32(0.5f), float32x4_t, vdupq_n_f32(0.5f), 4,
          vfmaq_f32)

const struct kern_peak cb_peak_neon = { read_all, read_blocks, f32, NULL, int8 };
