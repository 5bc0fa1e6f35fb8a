/* SPDX-License-Identifier: MIT */
/* mm_scalar.c - matrix products in plain C, for machines without a vector variant of their own. */
#include <math.h>
#include <string.h>

#include "kern_mm.h"

#define MM_TILE   4
#define MM_GROUPS 1
#include "mm_act16.h"
#include "mm_table.h"

INLINE uint16_t half_at(const uint8_t *p, int r)
{
    uint16_t v;
    memcpy(&v, p + 2 * r, sizeof v);
    return v;
}

INLINE void load_f16(const uint8_t *p, float unit, float out[MM_ROWS])
{
    for (int r = 0; r < MM_ROWS; r++)
        out[r] = cb_f16_to_f32(half_at(p, r)) * unit;
}

/* The codes of a block as signed numbers around zero: w[8][16 rows][4]. */
INLINE void block_codes(enum dtype t, const uint8_t *q, int8_t w[8 * 64])
{
    const int lines = mm_layout[t].lines, zero = mm_layout[t].zero;
    const int8_t *book = mm_layout[t].book;
    const uint8_t *lo = q + 64 * (lines - 4), *pair = q + 64 * (lines - 2);

    if (lines == 8) {
        memcpy(w, q, 8 * 64);
        return;
    }
    for (int g = 0; g < 8; g++)
        for (int p = 0; p < 64; p++) {
            int v = lines < 4 ? pair[64 * (g / 4) + p] >> 2 * (g % 4) & 3
                    : g < 4   ? lo[64 * g + p] & 15
                              : lo[64 * (g - 4) + p] >> 4;
            if (lines == 3)
                v |= (q[p] >> g & 1) << 2;
            if (lines == 5)
                v |= (q[p] >> g & 1) << 4;
            if (lines == 6)
                v |= (q[64 * (g / 4) + p] >> 2 * (g % 4) & 3) << 4;
            w[64 * g + p] = (int8_t)(book ? book[v] : v - zero);
        }
}

struct scales {
    float d[MM_ROWS], dmin[MM_ROWS]; /* of the chunk */
    float s[2][MM_ROWS], m[2][MM_ROWS];
};

INLINE void chunk_scales(enum dtype t, const uint8_t *p, struct scales *s)
{
    if (!mm_layout[t].chunk_scale)
        return;
    load_f16(p, mm_unit(t), s->d);
    if (mm_layout[t].scale == MM_BYTES || mm_layout[t].scale == MM_NIBBLES)
        load_f16(p + 32, mm_unit(t), s->dmin);
}

INLINE void block_scales(enum dtype t, const uint8_t *p, int b, struct scales *s)
{
    p += mm_layout[t].chunk_scale + b * mm_layout[t].block_scale;
    if (mm_layout[t].scale == MM_HALVES) {
        load_f16(p, 1, s->s[0]);
        if (mm_has_min(mm_layout[t].panel))
            load_f16(p + 32, 1, s->m[0]);
        return;
    }
    for (int r = 0; r < MM_ROWS; r++) {
        switch (mm_layout[t].scale) {
        case MM_EXPONENT:
            s->s[0][r] = cb_e8m0_to_f32(p[r]);
            break;
        case MM_CHUNK_D:
            s->s[0][r] = s->d[r];
            break;
        case MM_TWO:
            s->s[1][r] = s->d[r] * (float)(int8_t)p[16 + r];
            /* fallthrough */
        case MM_ONE:
            s->s[0][r] = s->d[r] * (float)(int8_t)p[r];
            break;
        case MM_BYTES:
            s->s[0][r] = s->d[r] * (float)p[r];
            s->m[0][r] = -(s->dmin[r] * (float)p[16 + r]);
            break;
        default:
            for (int h = 0; h < 2; h++) {
                s->s[h][r] = s->d[r] * (float)(p[16 * h + r] & 15);
                s->m[h][r] = s->dmin[r] * (float)(p[16 * h + r] >> 4);
            }
        }
    }
}

/* sum[16] += four lines x 16 activations */
static void dot4(const int8_t *w, const int8_t *x, int32_t sum[MM_ROWS])
{
    for (int g = 0; g < 4; g++, w += 64, x += 4)
        for (int r = 0; r < MM_ROWS; r++)
            sum[r] +=
                w[4 * r] * x[0] + w[4 * r + 1] * x[1] + w[4 * r + 2] * x[2] + w[4 * r + 3] * x[3];
}

/* 16-bit: the high codes, which precede token i's own, count 256 times. */
INLINE void block_token(enum dtype t, const int8_t *w, const struct scales *s, const uint8_t *rec,
                        int i, int n, int act16, float acc[MM_ROWS])
{
    const int two = mm_has_two(mm_layout[t].panel);
    int32_t sum[2][MM_ROWS] = { { 0 } };
    int8_t x[32];
    int32_t neg[2]; /* of 16 columns each */
    float d, d_sum;

    for (int h = 0; h < 2; h++)
        memcpy(&neg[h], rec + (44 + 4 * h) * n + 4 * i, sizeof neg[h]);
    memcpy(x, rec + 32 * i, sizeof x);
    memcpy(&d, rec + 32 * n + 4 * i, sizeof d);
    memcpy(&d_sum, rec + 36 * n + 4 * i, sizeof d_sum);
    if (act16) {
        int8_t high[32];
        memcpy(high, rec + 32 * (i - 1), sizeof high);
        dot4(w, high, sum[0]);
        dot4(w + 256, high + 16, sum[two]);
        for (int r = 0; r < MM_ROWS; r++) {
            sum[0][r] *= 256;
            sum[1][r] *= 256;
        }
    }
    dot4(w, x, sum[0]);
    dot4(w + 256, x + 16, sum[two]);
    for (int r = 0; r < MM_ROWS; r++) {
        float v = (float)sum[0][r] * s->s[0][r];
        if (two)
            v += (float)sum[1][r] * s->s[1][r];
        if (mm_layout[t].panel == MM_MIN16)
            v += (float)neg[0] * s->m[0][r] + (float)neg[1] * s->m[1][r];
        acc[r] += v * d;
        if (mm_has_min(mm_layout[t].panel))
            acc[r] += s->m[0][r] * d_sum;
    }
}

INLINE void direct(enum dtype t, int n, int act16, const uint8_t *w, const uint8_t *x, int n_in,
                   float *out)
{
    memset(out, 0, (size_t)(n - act16) * MM_ROWS * sizeof *out);
    for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
        const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
        const uint8_t *q = w + mm_scale_bytes(t, nb);
        struct scales s;

        chunk_scales(t, w, &s);
        for (int b = 0; b < nb; b++) {
            int8_t codes[8 * 64];
            block_scales(t, w, b, &s);
            block_codes(t, q, codes);
            for (int i = act16; i < n; i++)
                block_token(t, codes, &s, x, i, n, act16, out + MM_ROWS * (i - act16));
            q += 64 * mm_layout[t].lines;
            x += mm_rec_bytes(n);
        }
        w = q;
    }
}

INLINE void batch(enum dtype t, const uint8_t *w, const uint8_t *x, int n_in, int n_tok, float *out)
{
    memset(out, 0, (size_t)n_tok * MM_ROWS * sizeof *out);
    for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
        const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
        const uint8_t *q = w + mm_scale_bytes(t, nb);
        struct scales s;

        chunk_scales(t, w, &s);
        for (int b = 0; b < nb; b++) {
            int8_t codes[8 * 64];
            block_scales(t, w, b, &s);
            block_codes(t, q, codes);
            for (int i = 0; i < n_tok; i++, x += mm_rec_bytes(2))
                block_token(t, codes, &s, x, 1, 2, 1, out + MM_ROWS * i);
            q += 64 * mm_layout[t].lines;
        }
        w = q;
    }
}

INLINE float weight_at(enum dtype t, const uint8_t *w, size_t i)
{
    float v;

    if (t == DT_F16)
        return cb_f16_to_f32(half_at(w + 2 * i, 0));
    if (t == DT_BF16)
        return cb_bf16_to_f32(half_at(w + 2 * i, 0));
    memcpy(&v, w + 4 * i, sizeof v);
    return v;
}

/* Two chains of additions (even and odd columns), joined at the end. */
INLINE void direct_float(enum dtype t, int n, const uint8_t *w, const float *x, int n_in,
                         float *out)
{
    float odd[MM_TILE * MM_ROWS] = { 0 };

    memset(out, 0, (size_t)n * MM_ROWS * sizeof *out);
    for (size_t k = 0; k < (size_t)n_in; k++) {
        float row[MM_ROWS], *acc = k & 1 ? odd : out;
        for (size_t r = 0; r < MM_ROWS; r++)
            row[r] = weight_at(t, w, k * MM_ROWS + r);
        for (int i = 0; i < n; i++)
            for (int r = 0; r < MM_ROWS; r++)
                acc[MM_ROWS * i + r] += row[r] * x[k * (size_t)n + (size_t)i];
    }
    for (int i = 0; i < n * MM_ROWS; i++)
        out[i] += odd[i];
}

static void quantize_block(const float *x, int i, int n, uint8_t *rec)
{
    float amax = 0, inv, f[2];
    int sum[2] = { 0, 0 };
    int32_t neg[3];

    for (int j = 0; j < 32; j++)
        amax = fabsf(x[j]) > amax ? fabsf(x[j]) : amax;
    inv = amax > 1e-30f ? 127 / amax : 0; /* a smaller amax would overflow 127 / amax */
    f[0] = amax > 1e-30f ? amax / 127 : 0;
    for (int j = 0; j < 32; j++) {
        const int q = (int)lrintf(x[j] * inv);
        rec[32 * i + j] = (uint8_t)(int8_t)q;
        sum[j / 16] += q;
    }
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

const struct kern_mm cb_mm_scalar = {
    .tile = MM_TILE,
    .direct_max = MM_TILE,
    .panel_rows = MM_ROWS,
    .quantize = quantize,
    .quantize_batch = quantize_act16,
    MM_DIRECT_TABLE,
};
