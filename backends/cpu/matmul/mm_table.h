/* SPDX-License-Identifier: MIT */
/* mm_table.h - for mm_ISA.c alone: instantiates its always-inlined direct(), direct_float(),
 * unpack() and panel() for each type and tile width, and fills the rows of its table. MM_TILE is
 * the ISA's tile, 4 or 6 tokens; MM_GROUPS the groups that its batch() multiplies at once. And what
 * all of them do alike. */
#ifndef MM_TABLE_H
#define MM_TABLE_H

#include <string.h>

#include "kern_mm.h"

#define INLINE static inline __attribute__((always_inline))

/* Prefetches into L2. A prefetch into L1 would occupy one of the few miss buffers until memory
 * answers. */
INLINE void prefetch(const uint8_t *p, int n_line)
{
#pragma GCC unroll 9
    for (int j = 0; j < n_line; j++)
        __builtin_prefetch(p + MM_AHEAD + 64 * j, 0, 2);
}

/* The numbers of a record of 16-bit codes, after these: their step, and the sums of both halves in
 * steps */
INLINE void end_act16(uint8_t *rec, float step, int32_t first, int32_t second)
{
    const float f[4] = { 0, step, 0, step * (float)(first + second) };
    const int32_t neg[6] = { 0, -(first + second), 0, -first, 0, -second };

    memcpy(rec + 64, f, sizeof f);
    memcpy(rec + 80, neg, sizeof neg);
}

#define MM_DIRECT(type, n)                                                                         \
    static void direct_##type##_##n(const void *w, const void *x, int n_in, float *out)            \
    {                                                                                              \
        direct(DT_##type, n, 0, w, x, n_in, out);                                                  \
    }
#define MM_FINE(type)                                                                              \
    static void act16_##type(const void *w, const void *x, int n_in, float *out)                   \
    {                                                                                              \
        direct(DT_##type, 2, 1, w, x, n_in, out);                                                  \
    }
/* batch() multiplies one group; where MM_GROUPS is 2 also two at once, and 8-bit tokens as well. */
#define MM_BATCH_ARGS                                                                              \
    const void *w, size_t step, int n_group, const void *x, int n_in, int n_tok, float *out
#if MM_GROUPS > 1
#define MM_BATCH_OF(name, type, act16)                                                             \
    static void name##_##type(MM_BATCH_ARGS)                                                       \
    {                                                                                              \
        if (n_group == MM_GROUPS)                                                                  \
            batch(DT_##type, MM_GROUPS, act16, w, step, x, n_in, n_tok, out);                      \
        else                                                                                       \
            batch(DT_##type, 1, act16, w, step, x, n_in, n_tok, out);                              \
    }
#define MM_BATCH(type)      MM_BATCH_OF(batch8, type, 0) MM_BATCH_OF(batch16, type, 1)
#define MM_BATCH8_ROW(type) [DT_##type] = batch8_##type,
#define MM_BATCH8_TABLE                                                                            \
    {                                                                                              \
        MM_QUANTS(MM_BATCH8_ROW)                                                                   \
    }
#else
#define MM_BATCH(type)                                                                             \
    static void batch16_##type(MM_BATCH_ARGS)                                                      \
    {                                                                                              \
        for (int k = 0; k < n_group; k++)                                                          \
            batch(DT_##type, (const uint8_t *)w + (size_t)k * step, x, n_in, n_tok,                \
                  out + (ptrdiff_t)k * n_tok * MM_ROWS);                                           \
    }
#define MM_BATCH8_TABLE                                                                            \
    {                                                                                              \
        NULL                                                                                       \
    }
#endif
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

#define MM_WRITTEN(M)        M(Q4_0) M(Q4_1) M(Q5_0) M(Q5_1) M(Q8_0) M(Q4_K) M(Q5_K) M(Q6_K)
#define MM_CODED_K(M)        M(Q2_K) M(Q3_K) M(TQ1_0) M(TQ2_0)
#define MM_CODED_BOOK(M)     M(IQ4_NL) M(IQ4_XS) M(MXFP4)
#define MM_LATTICE_12(M)     M(IQ1_S) M(IQ1_M) M(IQ2_XXS) M(IQ2_XS) M(IQ2_S)
#define MM_LATTICE(M)        MM_LATTICE_12(M) M(IQ3_XXS) M(IQ3_S)
#define MM_QUANTS(M)         MM_WRITTEN(M) MM_CODED_K(M) MM_CODED_BOOK(M) MM_LATTICE(M)
#define MM_FLOATS(M)         M(F32) M(F16) M(BF16)
#define MM_KINDS_32(M)       M(MM_SYM4) M(MM_SYM5) M(MM_SYM8) M(MM_MIN4) M(MM_MIN5)
#define MM_KINDS(M)          MM_KINDS_32(M) M(MM_SYM16) M(MM_WIDE16) M(MM_MIN16)
#define MM_DIRECT_4(type)    MM_1_TO_4(MM_DIRECT, type) MM_FINE(type) MM_BATCH(type)
#define MM_FLOAT_ALL(type)   MM_1_TO_TILE(MM_FLOAT, type)
#define MM_PANEL_ALL(kind)   MM_1_TO_TILE(MM_PANEL, kind)
#define MM_QUANT_ROW(type)   [DT_##type] = MM_ROW_4(direct, type),
#define MM_FINE_ROW(type)    [DT_##type] = act16_##type,
#define MM_BATCH16_ROW(type) [DT_##type] = batch16_##type,
#define MM_FLOAT_ROW(type)   [DT_##type] = MM_ROW_TILE(direct, type),
#define MM_UNPACK_ROW(type)  [DT_##type] = unpack_##type,
#define MM_PANEL_ROW(kind)   [kind] = MM_ROW_TILE(panel, kind),

#define MM_DEFINE_DIRECT MM_QUANTS(MM_DIRECT_4) MM_FLOATS(MM_FLOAT_ALL)
#define MM_DEFINE_PANEL  MM_QUANTS(MM_UNPACK) MM_KINDS(MM_PANEL_ALL)
#define MM_DIRECT_TABLE                                                                            \
    .quantize_act16 = quantize_act16,                                                              \
    .direct = { MM_QUANTS(MM_QUANT_ROW) MM_FLOATS(MM_FLOAT_ROW) },                                 \
    .act16 = { MM_QUANTS(MM_FINE_ROW) },                                                           \
    .batch = { MM_BATCH8_TABLE, { MM_QUANTS(MM_BATCH16_ROW) } }
#define MM_PANEL_TABLE .unpack = { MM_QUANTS(MM_UNPACK_ROW) }, .panel = { MM_KINDS(MM_PANEL_ROW) }

#endif
