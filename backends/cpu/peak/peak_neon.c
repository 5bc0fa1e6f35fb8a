/* SPDX-License-Identifier: MIT */
/* peak_neon.c - the peak of ARMv8.2's floats and dot products; compiled again for ARMv8.6, of its
 * products of 2 x 8 and 8 x 2 integers, and of 2 x 4 and 4 x 2 numbers of bf16. */
#include <arm_neon.h>

#include "peak_read.h"

#ifdef __ARM_FEATURE_MATMUL_INT8
PEAK_SPIN(int8, "w", int32x4_t, 16, vdupq_n_s32(0), int8x16_t, vdupq_n_s8(1), 32, vmmlaq_s32)
#else
PEAK_SPIN(int8, "w", int32x4_t, 16, vdupq_n_s32(0), int8x16_t, vdupq_n_s8(1), 16, vdotq_s32)
#endif

#if defined __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#define PEAK_NEON cb_peak_bf16
#define PEAK_BF16 bf16
/* about 1/2 as bf16; 1/2 itself would be an immediate that gcc 12 takes from fp16 */
#define HALVES vreinterpretq_bf16_u16(vdupq_n_u16(0x3f01))
PEAK_SPIN(bf16, "w", float32x4_t, 16, vdupq_n_f32(0), bfloat16x8_t, HALVES, 16, vbfmmlaq_f32)
#else
#define PEAK_BF16 NULL
#ifdef __ARM_FEATURE_MATMUL_INT8
#define PEAK_NEON cb_peak_i8mm
#else
#define PEAK_NEON cb_peak_neon
#endif
#endif
PEAK_SPIN(f32, "w", float32x4_t, 16, vdupq_n_f32(0.5f), float32x4_t, vdupq_n_f32(0.5f), 4,
          vfmaq_f32)

const struct kern_peak PEAK_NEON = { read_all, read_blocks, f32, PEAK_BF16, int8 };
