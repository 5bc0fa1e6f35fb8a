/* SPDX-License-Identifier: MIT */
/* dtype.c - the table of element types; plain floats and the 32-element quantised blocks. */
#include "dtype.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "dtype_k.h"

static void f32_to_f32(const void *x, float *y, int64_t n)
{
    memcpy(y, x, (size_t)n * sizeof *y);
}

static void f32_from_f32(const float *x, void *y, int64_t n)
{
    memcpy(y, x, (size_t)n * sizeof *x);
}

static void f16_to_f32(const void *x, float *y, int64_t n)
{
    const uint8_t *p = x;

    for (int64_t i = 0; i < n; i++)
        y[i] = cb_f16_to_f32(cb_load16(p + 2 * i));
}

static void f16_from_f32(const float *x, void *y, int64_t n)
{
    uint8_t *p = y;

    for (int64_t i = 0; i < n; i++)
        cb_store16(p + 2 * i, cb_f32_to_f16(x[i]));
}

static void bf16_to_f32(const void *x, float *y, int64_t n)
{
    const uint8_t *p = x;

    for (int64_t i = 0; i < n; i++)
        y[i] = cb_bf16_to_f32(cb_load16(p + 2 * i));
}

static void bf16_from_f32(const float *x, void *y, int64_t n)
{
    uint8_t *p = y;

    for (int64_t i = 0; i < n; i++)
        cb_store16(p + 2 * i, cb_f32_to_bf16(x[i]));
}

/* The four 4- and 5-bit types differ in whether a minimum and a plane of fifth bits are stored:
 * f16 d, [f16 m], [u32 fifth bits], 16 bytes of nibbles: low = elements 0..15, high = 16..31. */
struct form {
    int bits, has_min;
};

static int form_bytes(struct form f)
{
    return 2 + 2 * f.has_min + (f.bits == 5 ? 4 : 0) + 16;
}

static inline void form_to_f32(struct form f, const uint8_t *p, float *y, int64_t n)
{
    const int off = f.has_min ? 0 : 1 << (f.bits - 1);

    for (int64_t i = 0; i < n; i += 32, y += 32, p += form_bytes(f)) {
        const float d = cb_f16_to_f32(cb_load16(p));
        const float m = f.has_min ? cb_f16_to_f32(cb_load16(p + 2)) : 0;
        const uint8_t *at = p + 2 + 2 * f.has_min;
        uint32_t high = 0;

        if (f.bits == 5) {
            memcpy(&high, at, 4);
            at += 4;
        }
        for (int j = 0; j < 16; j++) {
            const int q0 = (at[j] & 15) | (int)(high >> j & 1) << 4;
            const int q1 = at[j] >> 4 | (int)(high >> (j + 16) & 1) << 4;
            y[j] = (float)(q0 - off) * d;
            y[j + 16] = (float)(q1 - off) * d;
            if (f.has_min) { /* without a minimum, -0 stays -0 */
                y[j] += m;
                y[j + 16] += m;
            }
        }
    }
}

static int clamp(int v, int hi)
{
    return v < 0 ? 0 : v > hi ? hi : v;
}

/* Smaller steps than a normal number have no finite inverse, and become 0 as f16. */
static float inverse(float step)
{
    return fabsf(step) >= FLT_MIN ? 1 / step : 0;
}

/* Scale and minimum that represent the extreme elements exactly: with a minimum both ends of the
 * range, without one the element of largest magnitude, which gets code 0 (-2^(bits-1) steps). */
static void form_fit(struct form f, const float *x, float *d, float *m)
{
    float lo = x[0], hi = x[0];

    for (int j = 1; j < 32; j++) {
        lo = x[j] < lo ? x[j] : lo;
        hi = x[j] > hi ? x[j] : hi;
    }
    if (f.has_min) {
        *d = (hi - lo) / (float)((1 << f.bits) - 1);
        *m = lo;
    } else {
        *d = (hi > -lo ? hi : lo) / (float)-(1 << (f.bits - 1));
        *m = 0;
    }
}

/* Bit 4 of each of eight codes -> one byte */
static uint32_t fifth_bits(const uint8_t *code)
{
    uint64_t v;
    memcpy(&v, code, sizeof v);
    return (uint32_t)((v >> 4 & 0x0101010101010101u) * 0x0102040810204080u >> 56);
}

static inline void form_from_f32(struct form f, const float *x, const float *column, uint8_t *p,
                                 int64_t n)
{
    const int top = (1 << f.bits) - 1, off = f.has_min ? 0 : 1 << (f.bits - 1);

    for (int64_t i = 0; i < n; i += 32, x += 32, p += form_bytes(f)) {
        uint8_t *at = p + 2 + 2 * f.has_min, code[32];
        uint32_t high = 0;
        float d, m, inv;

        if (column) { /* a form without minimum */
            d = cb_fit_signed(x, column + i, off);
            m = 0;
        } else {
            form_fit(f, x, &d, &m);
        }
        inv = inverse(d);
        cb_store16(p, cb_f32_to_f16(d));
        if (f.has_min)
            cb_store16(p + 2, cb_f32_to_f16(m));
        for (int j = 0; j < 32; j++) { /* floor(y), in a form that vectorises */
            const float y = (x[j] - m) * inv + 0.5f;
            const int c = (int)y - (y < (float)(int)y);
            code[j] = (uint8_t)clamp(c + off, top);
        }
        if (f.bits == 5) {
            for (int j = 0; j < 4; j++)
                high |= fifth_bits(code + 8 * j) << 8 * j;
            memcpy(at, &high, 4);
            at += 4;
        }
        for (int j = 0; j < 16; j++)
            at[j] = (uint8_t)((code[j] & 15) | (code[j + 16] & 15) << 4);
    }
}

/* Both directions of one of the four types, with its form a compile-time constant */
#define FORM(name, bits, has_min)                                                                  \
    static void name##_to_f32(const void *x, float *y, int64_t n)                                  \
    {                                                                                              \
        form_to_f32((struct form){ bits, has_min }, x, y, n);                                      \
    }                                                                                              \
    static void name##_from_f32(const float *x, void *y, int64_t n)                                \
    {                                                                                              \
        form_from_f32((struct form){ bits, has_min }, x, NULL, y, n);                              \
    }

FORM(q4_0, 4, 0)
FORM(q4_1, 4, 1)
FORM(q5_0, 5, 0)
FORM(q5_1, 5, 1)

static void q4_0_weighted(const float *x, const float *column, void *y, int64_t n)
{
    form_from_f32((struct form){ 4, 0 }, x, column, y, n);
}

static void q5_0_weighted(const float *x, const float *column, void *y, int64_t n)
{
    form_from_f32((struct form){ 5, 0 }, x, column, y, n);
}

dtype_weighted cb_dtype_weighted(enum dtype t)
{
    static const dtype_weighted of[DT_COUNT] = {
        [DT_Q4_0] = q4_0_weighted,    [DT_Q5_0] = q5_0_weighted,    [DT_Q4_K] = cb_q4_k_weighted,
        [DT_Q5_K] = cb_q5_k_weighted, [DT_Q6_K] = cb_q6_k_weighted,
    };
    return of[t];
}

static void q8_0_to_f32(const void *x, float *y, int64_t n)
{
    const uint8_t *p = x;

    for (int64_t i = 0; i < n; i += 32, p += 34) {
        const float d = cb_f16_to_f32(cb_load16(p));
        for (int j = 0; j < 32; j++)
            y[i + j] = (float)(int8_t)p[2 + j] * d;
    }
}

static void q8_0_from_f32(const float *x, void *y, int64_t n)
{
    uint8_t *p = y;

    for (int64_t i = 0; i < n; i += 32, p += 34) {
        float amax = 0, d, inv;
        for (int j = 0; j < 32; j++)
            amax = fabsf(x[i + j]) > amax ? fabsf(x[i + j]) : amax;
        d = amax / 127;
        inv = inverse(d);
        cb_store16(p, cb_f32_to_f16(d));
        for (int j = 0; j < 32; j++)
            p[2 + j] = (uint8_t)(int8_t)lrintf(x[i + j] * inv);
    }
}

/* The e2m1 code of magnitude m, in steps of half its unit; ties: the smaller one */
static uint8_t nearest_fp4(float m)
{
    static const float between[] = { 0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10 };
    uint8_t code = 0;

    for (size_t i = 0; i < sizeof between / sizeof *between; i++)
        code = (uint8_t)(code + (m > between[i]));
    return code;
}

/* The exponent is that of the largest magnitude, less 2, that of e2m1's largest number (OCP
 * Microscaling Formats 1.0, 6.3). */
static void mxfp4_from_f32(const float *x, void *y, int64_t n)
{
    uint8_t *p = y;

    for (int64_t i = 0; i < n; i += 32, x += 32, p += 17) {
        uint8_t code[32];
        float top = 0, step;
        int e;

        for (int j = 0; j < 32; j++)
            top = fabsf(x[j]) > top ? fabsf(x[j]) : top;
        (void)frexpf(top, &e); /* top is 0.5..1 * 2^e */
        p[0] = (uint8_t)(top > 0 && e > -124 ? e + 124 : 0);
        step = ldexpf(1, p[0] - 128);
        for (int j = 0; j < 32; j++) {
            code[j] = nearest_fp4(fabsf(x[j]) / step);
            code[j] |= (uint8_t)(x[j] < 0 && code[j] ? 8 : 0);
        }
        for (int j = 0; j < 16; j++)
            p[1 + j] = (uint8_t)(code[j] | code[16 + j] << 4);
    }
}

static void i32_to_f32(const void *x, float *y, int64_t n)
{
    const char *p = x;

    for (int64_t i = 0; i < n; i++) {
        int32_t v;
        memcpy(&v, p + (size_t)i * sizeof v, sizeof v);
        y[i] = (float)v;
    }
}

static void i32_from_f32(const float *x, void *y, int64_t n)
{
    char *p = y;

    for (int64_t i = 0; i < n; i++) {
        const int32_t v = (int32_t)lrintf(x[i]);
        memcpy(p + (size_t)i * sizeof v, &v, sizeof v);
    }
}

const struct dtype_info cb_dtype[DT_COUNT + 1] = {
    [DT_F32] = { "F32", 0, 1, 4, f32_to_f32, f32_from_f32 },
    [DT_F16] = { "F16", 1, 1, 2, f16_to_f32, f16_from_f32 },
    [DT_BF16] = { "BF16", 30, 1, 2, bf16_to_f32, bf16_from_f32 },
    [DT_Q4_0] = { "Q4_0", 2, 32, 18, q4_0_to_f32, q4_0_from_f32 },
    [DT_Q4_1] = { "Q4_1", 3, 32, 20, q4_1_to_f32, q4_1_from_f32 },
    [DT_Q5_0] = { "Q5_0", 6, 32, 22, q5_0_to_f32, q5_0_from_f32 },
    [DT_Q5_1] = { "Q5_1", 7, 32, 24, q5_1_to_f32, q5_1_from_f32 },
    [DT_Q8_0] = { "Q8_0", 8, 32, 34, q8_0_to_f32, q8_0_from_f32 },
    [DT_Q4_K] = { "Q4_K", 12, 256, 144, cb_q4_k_to_f32, cb_q4_k_from_f32 },
    [DT_Q5_K] = { "Q5_K", 13, 256, 176, cb_q5_k_to_f32, cb_q5_k_from_f32 },
    [DT_Q6_K] = { "Q6_K", 14, 256, 210, cb_q6_k_to_f32, cb_q6_k_from_f32 },
    [DT_Q2_K] = { "Q2_K", 10, 256, 84, cb_q2_k_to_f32, NULL },
    [DT_Q3_K] = { "Q3_K", 11, 256, 110, cb_q3_k_to_f32, NULL },
    [DT_IQ4_NL] = { "IQ4_NL", 20, 32, 18, cb_iq4_nl_to_f32, NULL },
    [DT_IQ4_XS] = { "IQ4_XS", 23, 256, 136, cb_iq4_xs_to_f32, NULL },
    [DT_MXFP4] = { "MXFP4", 39, 32, 17, cb_mxfp4_to_f32, mxfp4_from_f32 },
    [DT_TQ1_0] = { "TQ1_0", 34, 256, 54, cb_tq1_0_to_f32, NULL },
    [DT_TQ2_0] = { "TQ2_0", 35, 256, 66, cb_tq2_0_to_f32, NULL },
    [DT_IQ1_S] = { "IQ1_S", 19, 256, 50, cb_iq1_s_to_f32, NULL },
    [DT_IQ1_M] = { "IQ1_M", 29, 256, 56, cb_iq1_m_to_f32, NULL },
    [DT_IQ2_XXS] = { "IQ2_XXS", 16, 256, 66, cb_iq2_xxs_to_f32, NULL },
    [DT_IQ2_XS] = { "IQ2_XS", 17, 256, 74, cb_iq2_xs_to_f32, NULL },
    [DT_IQ2_S] = { "IQ2_S", 22, 256, 82, cb_iq2_s_to_f32, NULL },
    [DT_IQ3_XXS] = { "IQ3_XXS", 18, 256, 98, cb_iq3_xxs_to_f32, NULL },
    [DT_IQ3_S] = { "IQ3_S", 21, 256, 110, cb_iq3_s_to_f32, NULL },
    [DT_I32] = { "I32", 26, 1, 4, i32_to_f32, i32_from_f32 },
};

int cb_dtype_from_ggml(uint32_t ggml_id)
{
    for (int t = 0; t <= DT_I32; t++)
        if (cb_dtype[t].ggml_id == ggml_id)
            return t;
    return -1;
}

const char *cb_ggml_type_name(uint32_t ggml_id)
{
    static const char *const name[] = {
        "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
        "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
        "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
        "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
        "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
        "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0",
        "Q2_0",
    };

    return ggml_id < sizeof name / sizeof *name ? name[ggml_id] : "?";
}
