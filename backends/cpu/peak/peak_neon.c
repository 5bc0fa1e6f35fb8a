/* SPDX-License-Identifier: MIT */
/* peak_neon.c - the peak of ARMv8.2's floats and dot products; compiled again for ARMv8.6, of its
 * products of 2 x 8 and 8 x 2 integers. */
#include <arm_neon.h>

#include "peak_read.h"

#ifdef __ARM_FEATURE_MATMUL_INT8
#define PEAK_NEON cb_peak_i8mm
PEAK_SPIN(int8, "w", int32x4_t, 16, vdupq_n_s32(0), int8x16_t, vdupq_n_s8(1), 32, vmmlaq_s32)
#else
#define PEAK_NEON cb_peak_neon
PEAK_SPIN(int8, "w", int32x4_t, 16, vdupq_n_s32(0), int8x16_t, vdupq_n_s8(1), 16, vdotq_s32)
#endif
PEAK_SPIN(f32, "w", float32x4_t, 16, vdupq_n_f32(0.5f), float32x4_t, vdupq_n_f32(0.5f), 4,
          vfmaq_f32)

const struct kern_peak PEAK_NEON = { read_all, read_blocks, f32, NULL, int8 };
