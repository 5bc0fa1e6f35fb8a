/* SPDX-License-Identifier: MIT */
/* dtype_coded.c - opens blocks whose codes stand for numbers of a small table, and decodes them. */
#include "dtype_coded.h"

#include <string.h>

#include "dtype_k.h"

const int8_t cb_book_iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113 };
/* Twice the numbers of e2m1 */
const int8_t cb_book_fp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
const int8_t cb_book_iq2[16] = { 8, 25, 43, -8, -25, -43 };
const int8_t cb_book_iq3_xxs[16] = { 4,  12,  20,  28,  36,  44,  52,  62,
                                     -4, -12, -20, -28, -36, -44, -52, -62 };
const int8_t cb_book_iq3_s[16] = { 1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15 };
const int8_t cb_book_iq1_m[16] = { -7, 1, 9, -9, -1, 7 };
static const int8_t book_2[16] = { 0, 1, 2, 3 };
static const int8_t book_3[16] = { -4, -3, -2, -1, 0, 1, 2, 3 };
static const int8_t book_ternary[16] = { -1, 0, 1, 2 };

float cb_e8m0_to_f32(unsigned e)
{
    const uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

/* 64 bytes of bit pairs: pair c % 4 of byte 32 * (c / 4) + l belongs to weight 32 * c + l. */
static void open_pairs(const uint8_t *q, uint8_t code[256])
{
    for (int c = 0; c < 8; c++)
        for (int l = 0; l < 32; l++)
            code[32 * c + l] = q[32 * (c / 4) + l] >> 2 * (c & 3) & 3;
}

/* 16 bytes for each 32 weights: low nibbles are the first 16 */
static void open_nibbles(const uint8_t *q, int n, uint8_t *code)
{
    for (int i = 0; i < n; i += 32, q += 16, code += 32)
        for (int l = 0; l < 16; l++) {
            code[l] = q[l] & 15;
            code[16 + l] = q[l] >> 4;
        }
}

/* Q2_K: 16 bytes of scale (low nibble) and minimum, 64 of bit pairs, f16 d, f16 dmin */
static void open_q2_k(const uint8_t *p, struct opened *b)
{
    open_pairs(p + 16, b->code);
    for (int j = 0; j < 16; j++) {
        b->scale[j] = (int8_t)(p[j] & 15);
        b->min[j] = p[j] >> 4;
    }
    b->d = cb_load16(p + 80);
    b->dmin = cb_load16(p + 82);
}

/* Q3_K: 32 bytes of third bits (bit c of byte l: weight 32 * c + l), 64 of bit pairs, 12 of scales,
 * f16 d. The low nibbles of the first 8 bytes of scales are those of scales 0..7, the high ones
 * those of 8..15; pair k of the last four belongs to scales 4k..4k+3. */
static void open_q3_k(const uint8_t *p, struct opened *b)
{
    const uint8_t *s = p + 96;

    open_pairs(p + 32, b->code);
    for (int j = 0; j < 256; j++)
        b->code[j] |= (uint8_t)((p[j % 32] >> j / 32 & 1) << 2);
    for (int j = 0; j < 16; j++)
        b->scale[j] =
            (int8_t)(((s[j % 8] >> 4 * (j / 8) & 15) | (s[8 + j % 4] >> 2 * (j / 4) & 3) << 4) -
                     32);
    b->d = cb_load16(p + 108);
}

static void open_iq4_nl(const uint8_t *p, struct opened *b)
{
    open_nibbles(p + 2, 32, b->code);
    memset(b->scale, 1, 2);
    b->d = cb_load16(p);
}

/* IQ4_XS: f16 d, 16 bits of high bit pairs of scales, 4 bytes of their nibbles, 128 of codes */
static void open_iq4_xs(const uint8_t *p, struct opened *b)
{
    const unsigned high = cb_load16(p + 2);

    open_nibbles(p + 8, 256, b->code);
    for (int j = 0; j < 16; j++) {
        const int c = j / 2;
        b->scale[j] =
            (int8_t)((int)((p[4 + c / 2] >> 4 * (c & 1) & 15) | (high >> 2 * c & 3) << 4) - 32);
    }
    b->d = cb_load16(p);
}

static void open_mxfp4(const uint8_t *p, struct opened *b)
{
    open_nibbles(p + 1, 32, b->code);
    memset(b->scale, 1, 2);
    b->d = p[0];
}

/* Digit k, the first being the highest, of a byte that holds five ternary digits as a fraction of
 * 256 */
static uint8_t digit(uint8_t q, int k)
{
    static const uint8_t power[] = { 1, 3, 9, 27, 81 };
    return (uint8_t)((uint8_t)(q * power[k]) * 3 >> 8);
}

/* TQ1_0: 32 bytes of five digits for weights 0..159, 16 of five for the next 80, 4 of four, f16 d.
 * Digit k of the bytes of a part belongs to the part's k-th run of this many weights. */
static void open_tq1_0(const uint8_t *p, struct opened *b)
{
    for (int j = 0; j < 160; j++)
        b->code[j] = digit(p[j % 32], j / 32);
    for (int j = 0; j < 80; j++)
        b->code[160 + j] = digit(p[32 + j % 16], j / 16);
    for (int j = 0; j < 16; j++)
        b->code[240 + j] = digit(p[48 + j % 4], j / 4);
    memset(b->scale, 1, 16);
    b->d = cb_load16(p + 52);
}

static void open_tq2_0(const uint8_t *p, struct opened *b)
{
    open_pairs(p, b->code);
    memset(b->scale, 1, 16);
    b->d = cb_load16(p + 64);
}

const struct coded cb_coded[DT_COUNT] = {
    [DT_Q2_K] = { open_q2_k, book_2, 1 },
    [DT_Q3_K] = { open_q3_k, book_3, 1 },
    [DT_IQ4_NL] = { open_iq4_nl, cb_book_iq4, 1 },
    [DT_IQ4_XS] = { open_iq4_xs, cb_book_iq4, 1 },
    [DT_MXFP4] = { open_mxfp4, cb_book_fp4, 1 },
    [DT_TQ1_0] = { open_tq1_0, book_ternary, 1 },
    [DT_TQ2_0] = { open_tq2_0, book_ternary, 1 },
    [DT_IQ1_S] = { cb_open_iq1_s, book_2, 0.125f },
    [DT_IQ1_M] = { cb_open_iq1_m, cb_book_iq1_m, 0.125f },
    [DT_IQ2_XXS] = { cb_open_iq2_xxs, cb_book_iq2, 0.125f },
    [DT_IQ2_XS] = { cb_open_iq2_xs, cb_book_iq2, 0.125f },
    [DT_IQ2_S] = { cb_open_iq2_s, cb_book_iq2, 0.125f },
    [DT_IQ3_XXS] = { cb_open_iq3_xxs, cb_book_iq3_xxs, 0.25f },
    [DT_IQ3_S] = { cb_open_iq3_s, cb_book_iq3_s, 1 },
};

static void to_f32(enum dtype t, const uint8_t *p, float *y, int64_t n)
{
    const struct coded *c = &cb_coded[t];
    const int block = cb_dtype[t].block, min = t == DT_Q2_K || t == DT_IQ1_S;
    struct opened b;

    for (int64_t i = 0; i < n; i += block, y += block, p += cb_dtype[t].block_bytes) {
        float d;

        c->open(p, &b);
        d = t == DT_MXFP4 ? cb_e8m0_to_f32(b.d) : cb_f16_to_f32(b.d);
        for (int j = 0; j < block; j += 16) {
            const float s = d * (float)b.scale[j / 16] * c->unit;
            const float m = min ? cb_f16_to_f32(b.dmin) * (float)b.min[j / 16] * c->unit : 0;

            for (int l = j; l < j + 16; l++)
                y[l] = s * (float)c->book[b.code[l]];
            for (int l = j; min && l < j + 16; l++) /* elsewhere -0 stays -0 */
                y[l] -= m;
        }
    }
}

#define CODED(name, type)                                                                          \
    void cb_##name##_to_f32(const void *x, float *y, int64_t n)                                    \
    {                                                                                              \
        to_f32(DT_##type, x, y, n);                                                                \
    }
CODED(q2_k, Q2_K)
CODED(q3_k, Q3_K)
CODED(iq4_nl, IQ4_NL)
CODED(iq4_xs, IQ4_XS)
CODED(mxfp4, MXFP4)
CODED(tq1_0, TQ1_0)
CODED(tq2_0, TQ2_0)
CODED(iq1_s, IQ1_S)
CODED(iq1_m, IQ1_M)
CODED(iq2_xxs, IQ2_XXS)
CODED(iq2_xs, IQ2_XS)
CODED(iq2_s, IQ2_S)
CODED(iq3_xxs, IQ3_XXS)
CODED(iq3_s, IQ3_S)
