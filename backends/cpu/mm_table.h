/* SPDX-License-Identifier: MIT */
/* mm_table.h - for mm_ISA.c alone: makes functions of its always-inlined direct(), direct_float(),
 * unpack() and panel() for each type and tile width, and the rows of its table. MM_TILE is the ISA's
 * tile, 4 or 6 tokens. */
#ifndef MM_TABLE_H
#define MM_TABLE_H

#include <math.h>
#include <string.h>

/* Into L2: asked for into L1, a line keeps one of the few buffers for misses until memory answers. */
static inline __attribute__((always_inline)) void ask_ahead(const uint8_t *p, int n_line)
{
#pragma GCC unroll 9
    for (int j = 0; j < n_line; j++)
        __builtin_prefetch(p + MM_AHEAD + 64 * j, 0, 2);
}

/* The nearest whole number of a small one */
static inline __attribute__((always_inline)) float nearest(float x)
{
    const float shift = 12582912; /* 1.5 * 2^23 */
    return (x + shift) - shift;
}

/* Largest magnitude of 32 numbers */
static inline __attribute__((always_inline)) float top_of_block(const float *x)
{
    float top[16];

    for (int i = 0; i < 16; i++) {
        const float a = fabsf(x[i]), b = fabsf(x[16 + i]);
        top[i] = a > b ? a : b;
    }
#pragma GCC unroll 4
    for (int n = 8; n; n /= 2)
        for (int i = 0; i < n; i++)
            top[i] = top[i] > top[n + i] ? top[i] : top[n + i];
    return top[0];
}

static inline __attribute__((always_inline)) int32_t sum_up(const int32_t *x)
{
    int32_t sum = 0;

    for (int i = 0; i < 16; i++)
        sum += x[i];
    return sum;
}

/* One block, in C that the compiler turns into the ISA's vectors; all zero where 127 / top would overflow */
static inline __attribute__((always_inline)) void quantize_fine_block(const float *x, uint8_t *rec)
{
    const float top = top_of_block(x), inv = top > 1e-30f ? 127 / top : 0;
    const float step = top > 1e-30f ? top / 127 / 256 : 0;
    int32_t high[32], low[32], both[32], sum[2], neg[6] = { 0 };
    float f[4] = { 0 };
    int8_t code[64];

    for (int i = 0; i < 32; i++) {
        const float v = x[i] * inv, h = nearest(v), l = nearest((v - h) * 256);
        high[i] = (int32_t)h;
        low[i] = (int32_t)(l < 127 ? l > -127 ? l : -127 : 127);
    }
    for (int i = 0; i < 32; i++)
        both[i] = 256 * high[i] + low[i];
    for (int i = 0; i < 32; i++)
        code[i] = (int8_t)high[i];
    for (int i = 0; i < 32; i++)
        code[32 + i] = (int8_t)low[i];
    for (int i = 0; i < 2; i++)
        sum[i] = sum_up(both + 16 * i);
    f[1] = step;
    f[3] = step * (float)(sum[0] + sum[1]);
    neg[1] = -(sum[0] + sum[1]);
    neg[3] = -sum[0];
    neg[5] = -sum[1];
    memcpy(rec, code, sizeof code);
    memcpy(rec + 64, f, sizeof f);
    memcpy(rec + 80, neg, sizeof neg);
}

static void quantize_fine(const float *x, int n_in, void *rec)
{
    for (int b = 0; b < n_in / 32; b++)
        quantize_fine_block(x + 32 * b, (uint8_t *)rec + (size_t)b * mm_rec_bytes(2));
}

#define MM_DIRECT(type, n)                                                                         \
    static void direct_##type##_##n(const void *w, const void *x, int n_in, float *out)            \
    {                                                                                              \
        direct(DT_##type, n, 0, w, x, n_in, out);                                                  \
    }
#define MM_FINE(type)                                                                              \
    static void fine_##type(const void *w, const void *x, int n_in, float *out)                    \
    {                                                                                              \
        direct(DT_##type, 2, 1, w, x, n_in, out);                                                  \
    }
#define MM_FLOAT(type, n)                                                                          \
    static void direct_##type##_##n(const void *w, const void *x, int n_in, float *out)            \
    {                                                                                              \
        direct_float(DT_##type, n, w, x, n_in, out);                                               \
    }
#define MM_UNPACK(type)                                                                            \
    static void unpack_##type(const void *const *w, int n_in, void *out)                           \
    {                                                                                              \
        unpack(DT_##type, w, n_in, out);                                                           \
    }
#define MM_PANEL(kind, n)                                                                          \
    static void panel_##kind##_##n(const void *w, const void *x, int n_in, float *out)             \
    {                                                                                              \
        panel(kind, n, w, x, n_in, out);                                                           \
    }

#define MM_1_TO_4(M, a) M(a, 1) M(a, 2) M(a, 3) M(a, 4)
#define MM_ROW_4(f, a)                                                                             \
    {                                                                                              \
        f##_##a##_1, f##_##a##_2, f##_##a##_3, f##_##a##_4                                         \
    }
#if MM_TILE == 6
#define MM_1_TO_TILE(M, a) MM_1_TO_4(M, a) M(a, 5) M(a, 6)
#define MM_ROW_TILE(f, a)                                                                          \
    {                                                                                              \
        f##_##a##_1, f##_##a##_2, f##_##a##_3, f##_##a##_4, f##_##a##_5, f##_##a##_6               \
    }
#else
#define MM_1_TO_TILE MM_1_TO_4
#define MM_ROW_TILE  MM_ROW_4
#endif

#define MM_QUANTS(M)        M(Q4_0) M(Q4_1) M(Q5_0) M(Q5_1) M(Q8_0) M(Q4_K) M(Q5_K) M(Q6_K)
#define MM_FLOATS(M)        M(F32) M(F16) M(BF16)
#define MM_KINDS(M)         M(MM_SYM4) M(MM_SYM5) M(MM_SYM8) M(MM_MIN4) M(MM_MIN5) M(MM_SYM16)
#define MM_DIRECT_4(type)   MM_1_TO_4(MM_DIRECT, type) MM_FINE(type)
#define MM_FLOAT_ALL(type)  MM_1_TO_TILE(MM_FLOAT, type)
#define MM_PANEL_ALL(kind)  MM_1_TO_TILE(MM_PANEL, kind)
#define MM_QUANT_ROW(type)  [DT_##type] = MM_ROW_4(direct, type),
#define MM_FINE_ROW(type)   [DT_##type] = fine_##type,
#define MM_FLOAT_ROW(type)  [DT_##type] = MM_ROW_TILE(direct, type),
#define MM_UNPACK_ROW(type) [DT_##type] = unpack_##type,
#define MM_PANEL_ROW(kind)  [kind] = MM_ROW_TILE(panel, kind),

#define MM_DEFINE_DIRECT MM_QUANTS(MM_DIRECT_4) MM_FLOATS(MM_FLOAT_ALL)
#define MM_DEFINE_PANEL  MM_QUANTS(MM_UNPACK) MM_KINDS(MM_PANEL_ALL)
#define MM_DIRECT_TABLE                                                                            \
    .quantize_fine = quantize_fine,                                                                \
    .direct = { MM_QUANTS(MM_QUANT_ROW) MM_FLOATS(MM_FLOAT_ROW) },                                 \
    .fine = { MM_QUANTS(MM_FINE_ROW) }
#define MM_PANEL_TABLE   .unpack = { MM_QUANTS(MM_UNPACK_ROW) }, .panel = { MM_KINDS(MM_PANEL_ROW) }

#endif
