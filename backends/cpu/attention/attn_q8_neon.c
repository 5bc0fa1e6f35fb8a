/* SPDX-License-Identifier: MIT */
/* attn_q8_neon.c - attention over q8_0 rows in integers, with the dot products of ARMv8.2. A query,
 * or the weights of a block's values, are two planes of bytes, hi * 256 + lo, so that products with
 * the stored codes are exact; only they (to 16 bits) and the scales are rounded. */
#include <string.h>

#include "attn_i16.h"
#include "cpu/vector/dot_neon.h"

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

enum {
    PANEL = 16, /* keys of a panel */
    QUADS = 8,  /* groups of four codes in a block of 32 */
    STEPS = 127 * 256,
};

/* 32 dims of a query */
struct query {
    int8_t hi[32], lo[32];
    float step;
};

/* 32 dims of a panel, as many bytes as the stored rows have */
struct keys {
    int8_t code[QUADS][PANEL][4];
    uint16_t scale[PANEL];
};

/* 32 dims of KEY_BLOCK values, in the same way */
struct values {
    int8_t code[KEY_BLOCK / 4][32][4];
    uint16_t scale[KEY_BLOCK];
};

static size_t q_bytes(int hd)
{
    return (size_t)(hd / 32) * sizeof(struct query);
}

static size_t k_bytes(int hd)
{
    return (size_t)(hd / 32) * sizeof(struct keys) / PANEL;
}

INLINE float32x4_t load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

INLINE int8x16_t narrow(const int32x4_t *v)
{
    const int16x8_t a = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
    const int16x8_t b = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));

    return vcombine_s8(vmovn_s16(a), vmovn_s16(b));
}

/* 16 numbers -> planes; their step is 1 / inv */
INLINE void planes(const float32x4_t *x, float inv, int8_t *hi, int8_t *lo)
{
    int32x4_t v[4], h[4];

    UNROLL
    for (int i = 0; i < 4; i++) {
        v[i] = vcvtnq_s32_f32(vmulq_n_f32(x[i], inv));
        h[i] = vshrq_n_s32(vaddq_s32(v[i], vdupq_n_s32(128)), 8);
        v[i] = vsubq_s32(v[i], vshlq_n_s32(h[i], 8));
    }
    vst1q_s8(hi, narrow(h));
    vst1q_s8(lo, narrow(v));
}

/* x[n], n a multiple of 16 -> planes; returns the step. A number that is not finite makes it NaN or
 * infinite. */
INLINE float split(const float32x4_t *x, int n, int8_t *hi, int8_t *lo)
{
    float32x4_t top = vdupq_n_f32(0);
    float step;

    for (int i = 0; i < n / 4; i++)
        top = vmaxq_f32(top, vabsq_f32(x[i]));
    step = vmaxvq_f32(top) / STEPS;
    for (int i = 0; i < n; i += 16)
        planes(x + i / 4, step > 0 ? 1 / step : 0, hi + i, lo + i);
    return step;
}

static void pack_q(const float *const *q, float scale, int rows, int mr, int hd, void *qp)
{
    struct query *y = qp;

    (void)mr;
    for (int r = 0; r < rows; r++)
        for (int b = 0; b < hd / 32; b++, y++) {
            float32x4_t x[8];
            for (int i = 0; i < 8; i++)
                x[i] = vmulq_n_f32(vld1q_f32(q[r] + 32 * b + 4 * i), scale);
            y->step = split(x, 32, y->hi, y->lo);
        }
}

/* ---- keys ---- */

/* Half h of the codes of 4 keys at p[] -> their places in quads 4h.. */
INLINE void transpose_codes(const char *const *row, size_t at, int h, int key, struct keys *y)
{
    int32x4_t x[4], t[4], z[4];

    for (int i = 0; i < 4; i++)
        x[i] = vreinterpretq_s32_s8(vld1q_s8((const int8_t *)row[i] + at + (size_t)(16 * h)));
    for (int i = 0; i < 4; i += 2) {
        t[i] = vtrn1q_s32(x[i], x[i + 1]);
        t[i + 1] = vtrn2q_s32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        const int64x2_t a = vreinterpretq_s64_s32(t[i]), b = vreinterpretq_s64_s32(t[i + 2]);
        z[i] = vreinterpretq_s32_s64(vtrn1q_s64(a, b));
        z[i + 2] = vreinterpretq_s32_s64(vtrn2q_s64(a, b));
    }
    for (int i = 0; i < 4; i++)
        vst1q_s8(y->code[4 * h + i][key], vreinterpretq_s8_s32(z[i]));
}

/* Block b of PANEL keys */
static void pack_block(const char *const *row, int b, struct keys *y)
{
    const size_t at = (size_t)b * 34;

    for (int i = 0; i < PANEL; i++)
        memcpy(y->scale + i, row[i] + at, 2);
    for (int i = 0; i < PANEL; i += 4)
        for (int h = 0; h < 2; h++)
            transpose_codes(row + i, at + 2, h, i, y);
}

static void pack_panel(const struct kern_rows *k, int j, int hd, struct keys *y)
{
    for (int i = j; i < j + PANEL && i < k->n_ahead; i++)
        for (size_t at = 0; at < k->bytes; at += 64)
            __builtin_prefetch(k->ahead[i] + at, 0, 2);
    for (int b = 0; b < hd / 32; b++)
        pack_block(k->row + j, b, y + b);
}

static void pack_k(const struct kern_rows *k, int hd, void *kp)
{
    struct keys *y = kp;

    for (int j = 0; j < k->n; j += PANEL, y += hd / 32)
        pack_panel(k, j, hd, y);
}

/* s[m][KEY_BLOCK] of a panel's keys, for m rows, 1 or 2; ahead: a panel to prefetch */
INLINE void qk_tile(int m, const struct query *q, const struct keys *k, const struct keys *ahead,
                    int hd, float *s)
{
    float32x4_t sum[2][4];

    UNROLL
    for (int i = 0; i < 4 * m; i++)
        sum[i / 4][i % 4] = vdupq_n_f32(0);
    for (int b = 0; b < hd / 32; b++, q++, k++, ahead++) {
        int32x4_t hi[2][4], lo[2][4];

        UNROLL
        for (int i = 0; i < 4 * m; i++)
            hi[i / 4][i % 4] = lo[i / 4][i % 4] = vdupq_n_s32(0);
        UNROLL
        for (int c = 0; c < QUADS; c++) {
            __builtin_prefetch(ahead->code[c], 0, 2);
            UNROLL
            for (int i = 0; i < 4; i++) {
                const int8x16_t x = vld1q_s8(k->code[c][4 * i]);
                UNROLL
                for (int r = 0; r < m; r++) {
                    const struct query *y = q + r * (hd / 32);
                    hi[r][i] = cb_dot_lane(hi[r][i], x, vld1q_s8(y->hi + c / 4 * 16), c % 4);
                    lo[r][i] = cb_dot_lane(lo[r][i], x, vld1q_s8(y->lo + c / 4 * 16), c % 4);
                }
            }
        }
        UNROLL
        for (int r = 0; r < m; r++)
            UNROLL
        for (int i = 0; i < 4; i++) {
            const int32x4_t v = vaddq_s32(vshlq_n_s32(hi[r][i], 8), lo[r][i]);
            sum[r][i] = vfmaq_f32(sum[r][i], vcvtq_f32_s32(v),
                                  vmulq_n_f32(load_f16(k->scale + 4 * i), q[r * (hd / 32)].step));
        }
    }
    UNROLL
    for (int i = 0; i < 4 * m; i++)
        vst1q_f32(s + i / 4 * KEY_BLOCK + i % 4 * 4, sum[i / 4][i % 4]);
}

/* n keys from the panel k on; ahead: panels to prefetch meanwhile */
static void mul_panels(const struct query *q, int rows, const struct keys *k,
                       const struct keys *ahead, int n, int hd, float *s)
{
    const int blocks = hd / 32;

    for (int j = 0; j < n; j += PANEL, k += blocks, ahead += blocks)
        for (int r = 0; r < rows; r += 2) {
            float *y = s + r * KEY_BLOCK + j;
            if (r + 1 < rows)
                qk_tile(2, q + r * blocks, k, r ? k : ahead, hd, y);
            else
                qk_tile(1, q + r * blocks, k, r ? k : ahead, hd, y);
        }
}

static void mul(const void *qp, int rows, int mr, const void *kp, int n, int hd, float *s)
{
    (void)mr;
    mul_panels(qp, rows, kp, kp, n, hd, s);
}

static void direct(const void *qp, int rows, const struct kern_rows *k, int hd, float *s)
{
    struct keys panel[MAX_HD / 32];

    for (int j = 0; j < k->n; j += PANEL) {
        pack_panel(k, j, hd, panel);
        mul_panels(qp, rows, panel, panel, PANEL, hd, s + j);
    }
}

static const struct kern_qk qk_q8 = { q_bytes, k_bytes, pack_q, pack_k, mul, direct };

/* ---- values ---- */

/* Rows, to the next multiple of four, as entries from `at` on */
static void pack_v_q8(const struct kern_rows *v, int hd, int at, void *vp)
{
    struct values *y = vp;

    for (int b = 0; b < hd / 32; b++, y++)
        for (int j = 0; j < v->n; j += 4) {
            const size_t from = (size_t)b * 34;
            for (int i = 0; i < 4; i++)
                memcpy(y->scale + at + j + i, v->row[j + i] + from, 2);
            for (int h = 0; h < 32; h += 16) {
                int8x16x4_t x;
                for (int i = 0; i < 4; i++)
                    x.val[i] = vld1q_s8((const int8_t *)v->row[j + i] + from + 2 + h);
                vst4q_s8(y->code[(at + j) / 4][h], x);
            }
        }
}

/* A row's weights times the scales of the entries that it sees -> planes; returns the step */
static float split_weights(const float *p, const uint16_t *scale, int seen, int8_t *hi, int8_t *lo)
{
    static const int32_t place[4] = { 0, 1, 2, 3 };
    float32x4_t x[KEY_BLOCK / 4];

    for (int j = 0; j < KEY_BLOCK; j += 4) {
        const uint32x4_t sees = vcltq_s32(vld1q_s32(place), vdupq_n_s32(seen - j));
        const float32x4_t v = vmulq_f32(vld1q_f32(p + j), load_f16(scale + j));
        x[j / 4] = vreinterpretq_f32_u32(vandq_u32(sees, vreinterpretq_u32_f32(v)));
    }
    return split(x, KEY_BLOCK, hi, lo);
}

/* o[32] = o * factor + step * (weights . codes); ahead: a block to prefetch */
static void pv_row(const struct values *v, const struct values *ahead, const int8_t *hi,
                   const int8_t *lo, float step, float factor, float *o)
{
    int32x4_t high[8], low[8];

    for (int i = 0; i < 8; i++)
        high[i] = low[i] = vdupq_n_s32(0);
    for (int j = 0; j < KEY_BLOCK / 4; j += 4) {
        const int8x16_t h = vld1q_s8(hi + 4 * j), l = vld1q_s8(lo + 4 * j);
        UNROLL
        for (int c = 0; c < 4; c++) {
            __builtin_prefetch(ahead->code[j + c], 0, 2);
            __builtin_prefetch(ahead->code[j + c][16], 0, 2);
            UNROLL
            for (int i = 0; i < 8; i++) {
                const int8x16_t x = vld1q_s8(v->code[j + c][4 * i]);
                high[i] = cb_dot_lane(high[i], x, h, c);
                low[i] = cb_dot_lane(low[i], x, l, c);
            }
        }
    }
    for (int i = 0; i < 8; i++) {
        const float32x4_t sum = vcvtq_f32_s32(vaddq_s32(vshlq_n_s32(high[i], 8), low[i]));
        const float32x4_t was = vmulq_n_f32(vld1q_f32(o + 4 * i), factor);
        vst1q_f32(o + 4 * i, vfmaq_n_f32(was, sum, step));
    }
}

static void sum_values(const struct kern_soft *s, const struct values *v,
                       const struct values *ahead, int hd, float *o)
{
    for (int b = 0; b < hd / 32; b++, v++, ahead++)
        for (int r = 0; r < s->rows; r++) {
            int8_t hi[KEY_BLOCK], lo[KEY_BLOCK];
            const float d = split_weights(s->s + r * KEY_BLOCK, v->scale, s->seen[r], hi, lo);
            pv_row(v, r ? v : ahead, hi, lo, d, s->factor[r], o + r * hd + 32 * b);
        }
}

/* The entries from n on have weight 0. */
static void pv_q8(const struct kern_soft *s, enum kv_type t, const void *vp, int n, int hd_pad,
                  float *o)
{
    (void)t, (void)n;
    sum_values(s, vp, vp, hd_pad, o);
}

/* ---- prepacked blocks ---- */

static void prepack_keys(const struct kern_rows *k, int hd, void *codes, float *step)
{
    struct keys *y = codes;

    (void)step;
    for (int j = 0; j < KEY_BLOCK; j += PANEL)
        for (int b = 0; b < hd / 32; b++, y++)
            pack_block(k->row + j, b, y);
}

static void prepack_values(const struct kern_rows *v, int hd, void *codes, float *step)
{
    (void)step;
    pack_v_q8(v, hd, 0, codes);
}

static void put_key(enum kv_type t, const void *row, int hd, int j, void *codes, float *step)
{
    struct keys *y = (struct keys *)codes + j / PANEL * (hd / 32);
    const int8_t *x = row;

    (void)t, (void)step;
    for (int b = 0; b < hd / 32; b++, y++, x += 34) {
        memcpy(y->scale + j % PANEL, x, 2);
        for (int c = 0; c < QUADS; c++)
            memcpy(y->code[c][j % PANEL], x + 2 + 4 * c, 4);
    }
}

static void open_key(enum kv_type t, const void *codes, const float *step, int hd, int j, void *row)
{
    const struct keys *x = (const struct keys *)codes + j / PANEL * (hd / 32);
    int8_t *y = row;

    (void)t, (void)step;
    for (int b = 0; b < hd / 32; b++, x++, y += 34) {
        memcpy(y, x->scale + j % PANEL, 2);
        for (int c = 0; c < QUADS; c++)
            memcpy(y + 2 + 4 * c, x->code[c][j % PANEL], 4);
    }
}

static void put_value(enum kv_type t, const void *row, int hd, int j, void *codes, float *step)
{
    struct values *y = codes;
    const int8_t *x = row;

    (void)t, (void)step;
    for (int b = 0; b < hd / 32; b++, y++, x += 34) {
        memcpy(y->scale + j, x, 2);
        for (int c = 0; c < 32; c++)
            y->code[j / 4][c][j % 4] = x[2 + c];
    }
}

static void open_value(enum kv_type t, const void *codes, const float *step, int hd, int j,
                       void *row)
{
    const struct values *x = codes;
    int8_t *y = row;

    (void)t, (void)step;
    for (int b = 0; b < hd / 32; b++, x++, y += 34) {
        memcpy(y, x->scale + j, 2);
        for (int c = 0; c < 32; c++)
            y[2 + c] = x->code[j / 4][c][j % 4];
    }
}

static void mul_prepacked(const void *qp, int rows, int mr, const void *codes, const float *step,
                          const void *ahead, int hd, float *s)
{
    (void)mr, (void)step;
    mul_panels(qp, rows, codes, ahead ? ahead : codes, KEY_BLOCK, hd, s);
}

static void pv_prepacked(const struct kern_soft *s, const void *codes, const float *step,
                         const void *ahead, int hd, float *o)
{
    (void)step;
    sum_values(s, codes, ahead ? ahead : codes, hd, o);
}

static const struct kern_prepack prepack_q8 = { prepack_keys,  prepack_values, put_key,
                                                put_value,     open_key,       open_value,
                                                mul_prepacked, pv_prepacked };

const struct kern_dots cb_dots_neon = {
    .qk_q8 = &qk_q8,
    .prepack_q8 = &prepack_q8,
    .pack_v_i16 = pack_v_q8,
    .pv_i16 = pv_q8,
    .sketch = &cb_sketch_kern_neon,
};
