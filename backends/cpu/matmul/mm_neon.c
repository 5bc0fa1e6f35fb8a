/* SPDX-License-Identifier: MIT */
/* mm_neon.c - matrix products with the dot-product instructions of ARMv8.2: a register is 4 rows x
 * 4 columns, four of them a line. Packed weights are unpacked as they stream by, for 1 to 4 tokens,
 * or once into a panel, for more. Compiled again for the extensions of ARMv8.6: with i8mm, whose
 * instruction for 2 x 2 sums of 8 products multiplies panels, and with bf16 beside it. */
#include <arm_neon.h>
#include <string.h>

#include "cpu/vector/dot_neon.h"
#include "kern_mm.h"

#if defined __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#define MM_TILE 6
#define MM_NEON cb_mm_bf16
#elif defined __ARM_FEATURE_MATMUL_INT8
#define MM_TILE 6
#define MM_NEON cb_mm_i8mm
#else
#define MM_TILE 4
#define MM_NEON cb_mm_neon
#endif
#define MM_GROUPS 1
#include "mm_act16.h"
#include "mm_table.h"

enum { AHEAD = 1024 }; /* prefetch distance in a stream of packed weights, bytes */

INLINE float32x4_t load_f16(const uint8_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

INLINE float bcast_f(const uint8_t *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE int32_t bcast(const uint8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE uint32_t word(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE float32x4_t load_u8(const uint8_t *p)
{
    const uint16x8_t v = vmovl_u8(vcreate_u8(word(p)));
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(v)));
}

INLINE float32x4_t load_i8(const uint8_t *p)
{
    const int16x8_t v = vmovl_s8(vcreate_s8(word(p)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(v)));
}

INLINE int32x4_t widen(const uint8_t *p)
{
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(word(p))))));
}

/* Exponents -> 2^(e - 128); the second form is that of numbers below the normal ones */
INLINE float32x4_t load_exponents(const uint8_t *p)
{
    const int32x4_t e = widen(p), one = vdupq_n_s32(1);

    return vreinterpretq_f32_s32(
        vmaxq_s32(vshlq_n_s32(vsubq_s32(e, one), 23), vshlq_n_s32(vaddq_s32(e, one), 21)));
}

/* Low or high nibbles of 4 bytes */
INLINE float32x4_t load_nibbles(const uint8_t *p, int high)
{
    const int32x4_t v = widen(p);

    return vcvtq_f32_s32(high ? vshrq_n_s32(v, 4) : vandq_s32(v, vdupq_n_s32(15)));
}

/* Bits `mask` of a, shifted left (n > 0) or right. */
INLINE uint8x16_t bits(uint8x16_t a, int n, uint8_t mask)
{
    return vandq_u8(vshlq_u8(a, vdupq_n_s8((int8_t)n)), vdupq_n_u8(mask));
}

/* Columns 4g..4g+3 of rows 4 * part.. of a block: codes as bytes (8 bits: signed), or their
 * numbers. DT_Q8_0: a block that is unpacked already */
INLINE int8x16_t codes(enum dtype t, const uint8_t *q, int g, int part)
{
    const int lines = mm_layout[t].lines;
    const uint8_t *lo = q + 64 * (lines - 4) + 64 * (g % 4) + 16 * part;
    uint8x16_t v;

    if (lines == 8)
        return vreinterpretq_s8_u8(vld1q_u8(q + 64 * g + 16 * part));
    if (lines < 4) {
        v = bits(vld1q_u8(q + 64 * (lines - 2 + g / 4) + 16 * part), -2 * (g % 4), 3);
        if (lines == 3)
            v = vorrq_u8(v, bits(vld1q_u8(q + 16 * part), 2 - g, 4));
    } else {
        v = vld1q_u8(lo);
        v = g < 4 ? vandq_u8(v, vdupq_n_u8(15)) : vshrq_n_u8(v, 4);
    }
    if (lines == 5)
        v = vorrq_u8(v, bits(vld1q_u8(q + 16 * part), 4 - g, 16));
    if (lines == 6)
        v = vorrq_u8(v, bits(vld1q_u8(q + 64 * (g / 4) + 16 * part), 4 - 2 * (g % 4), 48));
    if (mm_layout[t].book)
        return vqtbl1q_s8(
            vaddq_s8(vld1q_s8(mm_layout[t].book), vdupq_n_s8((int8_t)mm_layout[t].zero)), v);
    return vreinterpretq_s8_u8(v);
}

/* sum[4 * token + part] += 16 columns (half 0 or 1 of a block) */
INLINE void add_half(enum dtype t, int n, int half, const uint8_t *q, const uint8_t *x,
                     int32x4_t *sum)
{
    int8x16_t v[MM_TILE];

#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
        v[i] = vreinterpretq_s8_u8(vld1q_u8(x + 32 * i + 16 * half));
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++)
#pragma GCC unroll 4
        for (int p = 0; p < 4; p++) {
            const int8x16_t w = codes(t, q, 4 * half + g, p);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                sum[4 * i + p] = cb_dot_lane(sum[4 * i + p], w, v[i], g);
        }
}

/* Scales of a block, for 16 rows */
struct scales {
    float32x4_t d[4], dmin[4]; /* of the chunk */
    float32x4_t s[4], s2[4], m[4], m2[4];
};

INLINE void chunk_scales(enum dtype t, const uint8_t *p, struct scales *s)
{
    if (!mm_layout[t].chunk_scale)
        return;
    for (int i = 0; i < 4; i++) {
        s->d[i] = vmulq_n_f32(load_f16(p + 8 * i), mm_unit(t));
        if (mm_layout[t].scale == MM_BYTES || mm_layout[t].scale == MM_NIBBLES)
            s->dmin[i] = vmulq_n_f32(load_f16(p + 32 + 8 * i), mm_unit(t));
    }
}

INLINE void block_scales(enum dtype t, const uint8_t *p, int b, struct scales *s)
{
    p += mm_layout[t].chunk_scale + b * mm_layout[t].block_scale;
    for (int i = 0; i < 4; i++) {
        switch (mm_layout[t].scale) {
        case MM_HALVES:
            s->s[i] = load_f16(p + 8 * i);
            if (mm_has_min(mm_layout[t].panel))
                s->m[i] = load_f16(p + 32 + 8 * i);
            break;
        case MM_EXPONENT:
            s->s[i] = load_exponents(p + 4 * i);
            break;
        case MM_CHUNK_D:
            s->s[i] = s->d[i];
            break;
        case MM_ONE:
            s->s[i] = vmulq_f32(s->d[i], load_i8(p + 4 * i));
            break;
        case MM_TWO:
            s->s[i] = vmulq_f32(s->d[i], load_i8(p + 4 * i));
            s->s2[i] = vmulq_f32(s->d[i], load_i8(p + 16 + 4 * i));
            break;
        case MM_BYTES:
            s->s[i] = vmulq_f32(s->d[i], load_u8(p + 4 * i));
            s->m[i] = vnegq_f32(vmulq_f32(s->dmin[i], load_u8(p + 16 + 4 * i)));
            break;
        case MM_NIBBLES:
            s->s[i] = vmulq_f32(s->d[i], load_nibbles(p + 4 * i, 0));
            s->s2[i] = vmulq_f32(s->d[i], load_nibbles(p + 16 + 4 * i, 0));
            s->m[i] = vmulq_f32(s->dmin[i], load_nibbles(p + 4 * i, 1));
            s->m2[i] = vmulq_f32(s->dmin[i], load_nibbles(p + 16 + 4 * i, 1));
        }
    }
}

INLINE void start_sums(int zero, const uint8_t *neg_sum, int n, int32x4_t *sum)
{
    for (int i = 0; i < 4 * n; i++)
        sum[i] = vdupq_n_s32(bcast(neg_sum + 4 * (i / 4)) * zero);
}

/* 16-bit activations: sum[4 + p] += 256 * sum[p]. */
INLINE void join_act16(int32x4_t *sum)
{
    for (int p = 0; p < 4; p++)
        sum[4 + p] = vaddq_s32(sum[4 + p], vshlq_n_s32(sum[p], 8));
}

/* 16-bit: the record of two holds one token; its result is the second one. t: DT_Q8_0 where the
 * block at q is unpacked; zero: the code of weight 0 in it */
INLINE void add_block(enum mm_panel kind, enum dtype t, int zero, int n, int act16,
                      const uint8_t *q, const struct scales *s, const uint8_t *x, float32x4_t *acc)
{
    int32x4_t sum[4 * MM_TILE], sum2[4 * MM_TILE];

    start_sums(zero, x + (mm_has_two(kind) ? 44 : 40) * n, n, sum);
    add_half(t, n, 0, q, x, sum);
    if (mm_has_two(kind))
        start_sums(zero, x + 48 * n, n, sum2);
    add_half(t, n, 1, q, x, mm_has_two(kind) ? sum2 : sum);
    if (act16)
        join_act16(sum);
    if (act16 && mm_has_two(kind))
        join_act16(sum2);
#pragma GCC unroll 16
    for (int i = 4 * act16; i < 4 * n; i++) {
        float32x4_t v = vmulq_f32(vcvtq_f32_s32(sum[i]), s->s[i & 3]);
        if (mm_has_two(kind))
            v = vfmaq_f32(v, vcvtq_f32_s32(sum2[i]), s->s2[i & 3]);
        if (kind == MM_MIN16) {
            v = vfmaq_n_f32(v, s->m[i & 3], (float)bcast(x + 44 * n + 4 * (i / 4)));
            v = vfmaq_n_f32(v, s->m2[i & 3], (float)bcast(x + 48 * n + 4 * (i / 4)));
        }
        acc[i] = vfmaq_n_f32(acc[i], v, bcast_f(x + 32 * n + 4 * (i / 4)));
        if (mm_has_min(kind))
            acc[i] = vfmaq_n_f32(acc[i], s->m[i & 3], bcast_f(x + 36 * n + 4 * (i / 4)));
    }
}

INLINE void ask_block(enum dtype t, const uint8_t *w, int b)
{
    for (int j = 0; j <= mm_layout[t].lines; j++)
        __builtin_prefetch(w + (size_t)b * mm_block_bytes(t) + AHEAD + 64 * j);
}

INLINE void direct(enum dtype t, int n, int act16, const uint8_t *w, const uint8_t *x, int n_in,
                   float *out)
{
    float32x4_t acc[4 * MM_TILE];

    for (int i = 0; i < 4 * n; i++)
        acc[i] = vdupq_n_f32(0);
    for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
        const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
        const uint8_t *q = w + mm_scale_bytes(t, nb);
        struct scales s;

        chunk_scales(t, w, &s);
        for (int b = 0; b < nb; b++) {
            ask_block(t, w, b);
            block_scales(t, w, b, &s);
            add_block(mm_layout[t].panel, t, mm_layout[t].zero, n, act16, q, &s, x, acc);
            q += 64 * mm_layout[t].lines;
            x += mm_rec_bytes(n);
        }
        w = q;
    }
    for (int i = 4 * act16; i < 4 * n; i++)
        vst1q_f32(out + 4 * (i - 4 * act16), acc[i]);
}

/* Unpacks each block once, into bytes, and multiplies it with all tokens. */
INLINE void batch(enum dtype t, const uint8_t *w, const uint8_t *x, int n_in, int n_tok, float *out)
{
    uint8_t line[8 * 64];

    for (int i = 0; i < 4 * n_tok; i++)
        vst1q_f32(out + 4 * i, vdupq_n_f32(0));
    for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
        const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
        const uint8_t *q = w + mm_scale_bytes(t, nb);
        struct scales s;

        chunk_scales(t, w, &s);
        for (int b = 0; b < nb; b++) {
            ask_block(t, w, b);
            block_scales(t, w, b, &s);
            for (int j = 0; j < 8; j++)
                for (int p = 0; p < 4; p++)
                    vst1q_s8((int8_t *)line + 64 * j + 16 * p, codes(t, q, j, p));
            for (int i = 0; i < n_tok; i++, x += mm_rec_bytes(2)) {
                float32x4_t acc[4 * MM_TILE];
                for (int p = 0; p < 4; p++)
                    acc[4 + p] = vld1q_f32(out + 16 * i + 4 * p);
                add_block(mm_layout[t].panel, DT_Q8_0, mm_layout[t].zero, 2, 1, line, &s, x, acc);
                for (int p = 0; p < 4; p++)
                    vst1q_f32(out + 16 * i + 4 * p, acc[4 + p]);
            }
            q += 64 * mm_layout[t].lines;
        }
        w = q;
    }
}

/* ---- panels ----
 * A block has weights less their zero, then for 4 rows at a time f32 [4]: scales, second scales,
 * minima, second minima, as far as its kind has them. */

INLINE int panel_numbers(enum mm_panel kind)
{
    return kind == MM_MIN16 ? 4 : mm_has_min(kind) || mm_has_two(kind) ? 2 : 1;
}

INLINE size_t panel_block(enum mm_panel kind)
{
    return 512 + 64 * (size_t)panel_numbers(kind);
}

INLINE float *store_numbers(enum mm_panel kind, const struct scales *s, int part, float *at)
{
    vst1q_f32(at, s->s[part]);
    if (mm_has_two(kind))
        vst1q_f32(at += 4, s->s2[part]);
    if (mm_has_min(kind) || kind == MM_MIN16)
        vst1q_f32(at += 4, s->m[part]);
    if (kind == MM_MIN16)
        vst1q_f32(at += 4, s->m2[part]);
    return at + 4;
}

INLINE int8x16_t weights(enum dtype t, const uint8_t *q, int g, int part)
{
    return vsubq_s8(codes(t, q, g, part), vdupq_n_s8((int8_t)mm_layout[t].zero));
}

#ifdef __ARM_FEATURE_MATMUL_INT8

/* Weights are [2 halves][blocks][4 row pairs][4][2 rows][8 columns]; each half of a block is
 * followed by the numbers of its 8 rows. */
INLINE void store_block(enum dtype t, const uint8_t *q, const struct scales *s, int b, int n_blk,
                        uint8_t *panel)
{
    const enum mm_panel kind = mm_layout[t].panel;
    const size_t half = panel_block(kind) / 2;

#pragma GCC unroll 4
    for (int part = 0; part < 4; part++) {
        uint8_t *at = panel + half * (size_t)(part / 2 * n_blk + b), *p = at + 128 * (part % 2);
        float *f = (float *)(void *)(at + 256) + 4 * (part % 2) * panel_numbers(kind);

#pragma GCC unroll 4
        for (int k = 0; k < 4; k++, p += 16) {
            const int32x4_t a = vreinterpretq_s32_s8(weights(t, q, 2 * k, part));
            const int32x4_t b4 = vreinterpretq_s32_s8(weights(t, q, 2 * k + 1, part));
            vst1q_s8((int8_t *)p, vreinterpretq_s8_s32(vzip1q_s32(a, b4)));
            vst1q_s8((int8_t *)p + 64, vreinterpretq_s8_s32(vzip2q_s32(a, b4)));
        }
        store_numbers(kind, s, part, f);
    }
}

/* Token i of a tile of n, or its last one */
INLINE int token(int i, int n)
{
    return i < n ? i : n - 1;
}

/* Numbers of tokens 2i and 2i + 1: [a, a, b, b] */
INLINE float32x4_t two_tokens(const uint8_t *p, int i, int n)
{
    return vcombine_f32(vdup_n_f32(bcast_f(p + 4 * token(2 * i, n))),
                        vdup_n_f32(bcast_f(p + 4 * token(2 * i + 1, n))));
}

INLINE float32x4_t two_sums(const uint8_t *p, int i, int n)
{
    return vcvtq_f32_s32(vcombine_s32(vdup_n_s32(bcast(p + 4 * token(2 * i, n))),
                                      vdup_n_s32(bcast(p + 4 * token(2 * i + 1, n)))));
}

/* Numbers of a row pair: [a, b, a, b] */
INLINE float32x4_t two_rows(const float *f)
{
    const float32x2_t v = vld1_f32(f);
    return vcombine_f32(v, v);
}

/* sum[pair of rows][pair of tokens] += columns [16 half, 16 half + 16) */
INLINE void add_pairs(int n, int half, const uint8_t *w, const uint8_t *x, int32x4_t *sum)
{
    const int n_pair = (n + 1) / 2;

#pragma GCC unroll 2
    for (int k = 2 * half; k < 2 * half + 2; k++) {
        int8x16_t v[MM_TILE / 2];

#pragma GCC unroll 3
        for (int i = 0; i < n_pair; i++)
            v[i] = vcombine_s8(vld1_s8((const int8_t *)x + 32 * token(2 * i, n) + 8 * k),
                               vld1_s8((const int8_t *)x + 32 * token(2 * i + 1, n) + 8 * k));
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++)
#pragma GCC unroll 3
            for (int i = 0; i < n_pair; i++)
                sum[r * n_pair + i] = vmmlaq_s32(sum[r * n_pair + i], v[i],
                                                 vld1q_s8((const int8_t *)w + 64 * r + 16 * k));
    }
}

/* The operations of add_block(), for 8 rows */
INLINE void add_half_block(enum mm_panel kind, int n, const uint8_t *w, const uint8_t *x,
                           float32x4_t *acc)
{
    const int n_pair = (n + 1) / 2, step = 4 * panel_numbers(kind);
    const float *f = (const float *)(const void *)(w + 256);
    int32x4_t sum[4 * MM_TILE / 2], sum2[4 * MM_TILE / 2];

    for (int i = 0; i < 4 * n_pair; i++)
        sum[i] = sum2[i] = vdupq_n_s32(0);
    add_pairs(n, 0, w, x, sum);
    add_pairs(n, 1, w, x, mm_has_two(kind) ? sum2 : sum);
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
        const float *at = f + r / 2 * step + 2 * (r % 2);
#pragma GCC unroll 3
        for (int i = 0; i < n_pair; i++) {
            const int k = r * n_pair + i;
            float32x4_t v = vmulq_f32(vcvtq_f32_s32(sum[k]), two_rows(at));
            if (mm_has_two(kind))
                v = vfmaq_f32(v, vcvtq_f32_s32(sum2[k]), two_rows(at + 4));
            if (kind == MM_MIN16) {
                v = vfmaq_f32(v, two_rows(at + 8), two_sums(x + 44 * n, i, n));
                v = vfmaq_f32(v, two_rows(at + 12), two_sums(x + 48 * n, i, n));
            }
            acc[k] = vfmaq_f32(acc[k], v, two_tokens(x + 32 * n, i, n));
            if (mm_has_min(kind))
                acc[k] = vfmaq_f32(acc[k], two_rows(at + 4), two_tokens(x + 36 * n, i, n));
        }
    }
}

INLINE void panel(enum mm_panel kind, int n, const uint8_t *w, const uint8_t *x, int n_in,
                  float *out)
{
    const int n_pair = (n + 1) / 2;

    for (int half = 0; half < 2; half++) {
        const uint8_t *rec = x;
        float32x4_t acc[4 * MM_TILE / 2];

        for (int i = 0; i < 4 * n_pair; i++)
            acc[i] = vdupq_n_f32(0);
        for (int b = 0; b < n_in / 32; b++, w += panel_block(kind) / 2, rec += mm_rec_bytes(n))
            add_half_block(kind, n, w, rec, acc);
        for (int i = 0; i < 4 * n_pair; i++) {
            float *o = out + 2 * MM_ROWS * (i % n_pair) + 8 * half + 2 * (i / n_pair);
            vst1_f32(o, vget_low_f32(acc[i]));
            if (2 * (i % n_pair) + 1 < n)
                vst1_f32(o + MM_ROWS, vget_high_f32(acc[i]));
        }
    }
}

#else

/* Weights are lines, as in a group. */
INLINE void store_block(enum dtype t, const uint8_t *q, const struct scales *s, int b, int n_blk,
                        uint8_t *panel)
{
    const enum mm_panel kind = mm_layout[t].panel;
    uint8_t *at = panel + panel_block(kind) * (size_t)b;
    float *f = (float *)(void *)(at + 512);

    (void)n_blk;
    for (int part = 0; part < 4; part++) {
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            vst1q_s8((int8_t *)at + 64 * g + 16 * part, weights(t, q, g, part));
        f = store_numbers(kind, s, part, f);
    }
}

INLINE void panel(enum mm_panel kind, int n, const uint8_t *w, const uint8_t *x, int n_in,
                  float *out)
{
    float32x4_t acc[4 * MM_TILE];

    for (int i = 0; i < 4 * n; i++)
        acc[i] = vdupq_n_f32(0);
    for (int b = 0; b < n_in / 32; b++, w += panel_block(kind), x += mm_rec_bytes(n)) {
        const float *f = (const float *)(const void *)(w + 512);
        struct scales s;

        for (int p = 0; p < 4; p++, f += 4 * panel_numbers(kind)) {
            s.s[p] = vld1q_f32(f);
            if (mm_has_two(kind))
                s.s2[p] = vld1q_f32(f + 4);
            if (mm_has_min(kind))
                s.m[p] = vld1q_f32(f + 4);
            if (kind == MM_MIN16) {
                s.m[p] = vld1q_f32(f + 8);
                s.m2[p] = vld1q_f32(f + 12);
            }
        }
        add_block(kind, DT_Q8_0, 0, n, 0, w, &s, x, acc);
    }
    for (int i = 0; i < 4 * n; i++)
        vst1q_f32(out + 4 * i, acc[i]);
}

#endif

INLINE void unpack(enum dtype t, const void *const *groups, int n_in, uint8_t *panel)
{
    const int n_blk = n_in / 32;
    const uint8_t *w = groups[0];

    for (int b0 = 0; b0 < n_blk; b0 += MM_CHUNK) {
        const int nb = n_blk - b0 < MM_CHUNK ? n_blk - b0 : MM_CHUNK;
        const uint8_t *q = w + mm_scale_bytes(t, nb);
        struct scales s;

        chunk_scales(t, w, &s);
        for (int b = 0; b < nb; b++, q += 64 * mm_layout[t].lines) {
            ask_block(t, w, b);
            block_scales(t, w, b, &s);
            store_block(t, q, &s, b0 + b, n_blk, panel);
        }
        w = q;
    }
}

INLINE float32x4_t load_row(enum dtype t, const uint8_t *w, size_t k, int part)
{
    if (t == DT_F32)
        return vreinterpretq_f32_u8(vld1q_u8(w + 64 * k + 16 * (size_t)part));
    w += 32 * k + 8 * (size_t)part;
    if (t == DT_F16)
        return load_f16(w);
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(w)), 16));
}

/* One chain of additions a row. */
INLINE void direct_plain(enum dtype t, int n, const uint8_t *w, const float *x, int n_in,
                         float *out)
{
    float32x4_t acc[4 * MM_TILE];

    for (int i = 0; i < 4 * n; i++)
        acc[i] = vdupq_n_f32(0);
    for (size_t k = 0; k < (size_t)n_in; k++, x += n)
#pragma GCC unroll 4
        for (int p = 0; p < 4; p++) {
            const float32x4_t v = load_row(t, w, k, p);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                acc[4 * i + p] = vfmaq_n_f32(acc[4 * i + p], v, x[i]);
        }
    for (int i = 0; i < 4 * n; i++)
        vst1q_f32(out + 4 * i, acc[i]);
}

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#include "mm_bf16_neon.h"

#define HALVE halve

/* BF16: x is halved */
INLINE void direct_float(enum dtype t, int n, const uint8_t *w, const void *x, int n_in, float *out)
{
    if (t == DT_BF16)
        direct_halves(n, w, x, n_in, out);
    else
        direct_plain(t, n, w, x, n_in, out);
}
#else
#define HALVE        NULL
#define direct_float direct_plain
#endif

/* One block: q = round(x * 127 / max|x|), d = max|x| / 127; all zero when that would overflow. */
static void quantize_block(const float *x, int i, int n, uint8_t *rec)
{
    float32x4_t m = vdupq_n_f32(0);
    int32_t sum[2] = { 0, 0 }, neg[3];
    float amax, inv, f[2];

    for (int j = 0; j < 32; j += 4)
        m = vmaxq_f32(m, vabsq_f32(vld1q_f32(x + j)));
    amax = vmaxvq_f32(m);
    inv = amax > 1e-30f ? 127 / amax : 0;
    for (int j = 0; j < 32; j += 8) {
        const int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + j), inv));
        const int32x4_t b = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + j + 4), inv));
        vst1_s8((int8_t *)rec + 32 * i + j, vqmovn_s16(vcombine_s16(vqmovn_s32(a), vqmovn_s32(b))));
        sum[j / 16] += vaddvq_s32(vaddq_s32(a, b));
    }
    f[0] = amax > 1e-30f ? amax / 127 : 0;
    f[1] = f[0] * (float)(sum[0] + sum[1]);
    neg[0] = -(sum[0] + sum[1]);
    neg[1] = -sum[0];
    neg[2] = -sum[1];
    for (int j = 0; j < 2; j++)
        memcpy(rec + 32 * n + 4 * (n * j + i), &f[j], 4);
    for (int j = 0; j < 3; j++)
        memcpy(rec + 40 * n + 4 * (n * j + i), &neg[j], 4);
}

static void quantize(const float *x, int width, int n_in, void *rec, size_t step)
{
    for (int b = 0; b < n_in / 32; b++)
        for (int i = 0; i < width; i++)
            quantize_block(x + (size_t)i * (size_t)n_in + 32 * b, i, width,
                           (uint8_t *)rec + (size_t)b * step);
}

MM_DEFINE_DIRECT
MM_DEFINE_PANEL

const struct kern_mm MM_NEON = {
    .tile = MM_TILE,
    .direct_max = 4,
    .panel_rows = MM_ROWS,
    .quantize = quantize,
    .quantize_batch = quantize_act16,
    .halve = HALVE,
    MM_DIRECT_TABLE,
    MM_PANEL_TABLE,
};
