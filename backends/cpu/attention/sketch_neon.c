/* SPDX-License-Identifier: MIT */
/* sketch_neon.c - scores by sketched keys with NEON's dot products: codes are multiplied four
 * channels of four tokens at a time, for up to eight query heads that share the unpacked codes. */
#include <arm_neon.h>

#include "cpu/vector/kern_vec.h"
#include "sketch_tile.h"

#define UNROLL _Pragma("GCC unroll 8")

INLINE int8x16_t four(const int8_t *w)
{
    int32_t x;
    memcpy(&x, w, sizeof x);
    return vreinterpretq_s8_s32(vdupq_n_s32(x));
}

INLINE void open_tile(struct tile *t, const struct shape *s, const uint8_t *block, const float *q)
{
    const int n = cb_sketch_pad(s->hd);
    float step[SKETCH_MAX_HD], min[SKETCH_MAX_HD];
    struct sketch_form f;

    cb_sketch_steps(s->hd, block, step, min);
    for (int h = 0; h < s->m; h++) {
        cb_sketch_form(&f, s->bits, s->strips, q + h * n, step, min);
        memcpy(t->w[h], f.w, (size_t)(s->n_strip * SKETCH_STRIP));
        t->mult[h] = (int16_t)f.mult;
        t->base[h] = (int16_t)f.base;
    }
}

/* Code k of each byte */
INLINE int8x16_t codes(int bits, uint8x16_t x, int k)
{
    const uint8x16_t mask = vdupq_n_u8((uint8_t)((1 << bits) - 1));
    return vreinterpretq_s8_u8(vandq_u8(vshlq_u8(x, vdupq_n_s8((int8_t)(-bits * k))), mask));
}

/* Eight tokens of a block for m query heads, four of the first vector of each pair (the first
 * pair's at `code`) and four of the second */
INLINE void scan_eight(const struct shape *s, const uint8_t *code, const struct tile *t,
                       int16_t *score, int stride)
{
    const int m = s->m, bits = s->bits, n = pairs_of(s);
    const int32x4_t down = vdupq_n_s32(-cb_sketch_shift(bits));
    int32x4_t sum[TILE][2];

    UNROLL
    for (int h = 0; h < m; h++)
        sum[h][0] = sum[h][1] = vdupq_n_s32(0);
    for (int i = 0; i < n; i++) {
        const uint8_t *pair = code + pair_at(s, i);
        const uint8x16_t a = vld1q_u8(pair), b = vld1q_u8(pair + 64);
        const int c = i * (32 / bits);
        UNROLL
        for (int k = 0; k < 8 / bits; k++) {
            const int8x16_t x = codes(bits, a, k), y = codes(bits, b, k);
            UNROLL
            for (int h = 0; h < m; h++) {
                const int8x16_t w = four(t->w[h] + c + 4 * k);
                sum[h][0] = vdotq_s32(sum[h][0], x, w);
                sum[h][1] = vdotq_s32(sum[h][1], y, w);
            }
        }
    }
    UNROLL
    for (int h = 0; h < m; h++) {
        const int16x8_t y = vcombine_s16(vqmovn_s32(vshlq_s32(sum[h][0], down)),
                                         vqmovn_s32(vshlq_s32(sum[h][1], down)));
        const int16x8_t x = vqrdmulhq_n_s16(y, t->mult[h]);
        vst1q_s16(score + h * stride, vqaddq_s16(x, vdupq_n_s16(t->base[h])));
    }
}

INLINE void scan_tile(const struct shape *s, const uint8_t *code, const struct tile *t,
                      int16_t *score, int stride)
{
    for (int j = 0; j < SKETCH_BLOCK; j += 8) {
        const uint8_t *from = code + (size_t)(j / 32) * group_bytes(s);
        ask_pairs(s, from, j / 8 % 4, 4);
        scan_eight(s, from + j % 32 * 2, t, score + j, stride);
    }
}

/* Eight weights: the table by the lowest 5 bits, shifted down by the others */
INLINE uint16x8_t weights(uint16x8_t below, const uint8x16x4_t *table)
{
    const uint16x8_t i = vandq_u16(below, vdupq_n_u16(31));
    const uint16x8_t at = vaddq_u16(vmulq_n_u16(i, 0x202), vdupq_n_u16(0x100)); /* 2i, 2i + 1 */
    const uint16x8_t w = vreinterpretq_u16_u8(vqtbl4q_u8(*table, vreinterpretq_u8_u16(at)));
    const uint16x8_t down = vminq_u16(vshrq_n_u16(below, 5), vdupq_n_u16(16));
    return vshlq_u16(w, vnegq_s16(vreinterpretq_s16_u16(down)));
}

static uint32_t weigh(const int16_t *score, int n, int16_t *top)
{
    uint8x16x4_t table;
    int16x8_t most = vdupq_n_s16(INT16_MIN);
    uint32x4_t sum = vdupq_n_u32(0);

    for (int i = 0; i < 4; i++)
        table.val[i] = vreinterpretq_u8_u16(vld1q_u16(cb_sketch_weight + 8 * i));
    for (int j = 0; j < n; j += 8)
        most = vmaxq_s16(most, vld1q_s16(score + j));
    *top = vmaxvq_s16(most);
    most = vdupq_n_s16(*top);
    for (int j = 0; j < n; j += 8) { /* differences are unsigned */
        const int16x8_t below = vsubq_s16(most, vld1q_s16(score + j));
        sum = vpadalq_u16(sum, weights(vreinterpretq_u16_s16(below), &table));
    }
    return vaddvq_u32(sum);
}

static void rank(const int16_t *score, int stride, const int16_t *lse, int heads, int n,
                 uint16_t *out)
{
    for (int j = 0; j < n; j += 8) {
        int16x8_t best = vdupq_n_s16(1 - SKETCH_BUCKETS);
        for (int h = 0; h < heads; h++) {
            const int16x8_t s = vld1q_s16(score + (size_t)h * (size_t)stride + j);
            best = vmaxq_s16(best, vqsubq_s16(s, vdupq_n_s16(lse[h])));
        }
        best = vminq_s16(best, vdupq_n_s16(0));
        vst1q_u16(out + j, vreinterpretq_u16_s16(vnegq_s16(best)));
    }
}

/* Most vectors have nothing at or below the limit. */
static int pick(const uint16_t *x, int n, int limit, int *n_equal, int from, int32_t *idx)
{
    int out = 0, j = 0;

    for (; j + 8 <= n; j += 8)
        if (vminvq_u16(vld1q_u16(x + j)) <= limit)
            out += cb_sketch_pick(x + j, 8, limit, n_equal, from + j, idx + out);
    return out + cb_sketch_pick(x + j, n - j, limit, n_equal, from + j, idx + out);
}

const struct kern_sketch cb_sketch_kern_neon = { scan, weigh, rank, cb_sketch_count, pick };
