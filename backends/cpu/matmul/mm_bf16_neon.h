/* SPDX-License-Identifier: MIT */
/* mm_bf16_neon.h - for mm_neon.c alone: BF16 weights times halved activations with the instruction
 * of ARMv8.6 for 2 x 2 sums of 4 products. The high and the low numbers of a token are the two rows
 * of one operand, two rows of weights the other, so nothing of it is idle even with one token. */
#ifndef MM_BF16_NEON_H
#define MM_BF16_NEON_H

enum { HALVES_WHOLE = 3 }; /* tokens up to which the sums of all 16 rows fit in registers */

INLINE bfloat16x8_t load_halves(const uint8_t *p)
{
    return vreinterpretq_bf16_u8(vld1q_u8(p));
}

/* acc[pair of rows][token] += four columns: [high, low] x two rows */
INLINE void add_fours(int n, int n_pair, const uint8_t *w, const uint8_t *x, float32x4_t *acc)
{
    bfloat16x8_t v[MM_TILE];

#pragma GCC unroll 6
    for (int i = 0; i < n; i++)
        v[i] = load_halves(x + 16 * i);
#pragma GCC unroll 8
    for (int r = 0; r < n_pair; r++) {
        const bfloat16x8_t a = load_halves(w + 16 * r);
#pragma GCC unroll 6
        for (int i = 0; i < n; i++)
            acc[r * n + i] = vbfmmlaq_f32(acc[r * n + i], v[i], a);
    }
}

/* One chain of additions for each row and half of the numbers */
INLINE void direct_halves(int n, const uint8_t *w, const uint8_t *x, int n_in, float *out)
{
    const int n_pair = n <= HALVES_WHOLE ? 8 : 4;

    for (int from = 0; from < 8; from += n_pair) {
        float32x4_t acc[4 * MM_TILE];

        for (int i = 0; i < n_pair * n; i++)
            acc[i] = vdupq_n_f32(0);
        for (size_t k = 0; k < mm_fours(n_in) / 4; k++)
            add_fours(n, n_pair, w + 128 * k + 16 * from, x + 16 * (size_t)n * k, acc);
        for (int i = 0; i < n_pair * n; i++)
            vst1_f32(out + MM_ROWS * (i % n) + 2 * (from + i / n),
                     vadd_f32(vget_low_f32(acc[i]), vget_high_f32(acc[i])));
    }
}

/* Both roundings are to the nearest. What low leaves is at most 2^-17 of the number. */
static void halve(const float *x, int width, int n_in, void *out)
{
    uint8_t *to = out;

    for (int k = 0; k < n_in; k += 4)
        for (int i = 0; i < width; i++, to += 16) {
            const float *at = x + (size_t)i * (size_t)n_in + k;
            float four[4] = { 0 };
            float32x4_t v;
            bfloat16x4_t high;

            memcpy(four, at, (size_t)(n_in - k < 4 ? n_in - k : 4) * sizeof *four);
            v = vld1q_f32(four);
            high = vcvt_bf16_f32(v);
            vst1q_u8(to, vreinterpretq_u8_bf16(vcombine_bf16(
                             high, vcvt_bf16_f32(vsubq_f32(v, vcvt_f32_bf16(high))))));
        }
}

#endif
