/* SPDX-License-Identifier: MIT */
/* attn_kivi.c - blocks of 32 numbers on 2 or 4 bits -> floats; keys in planes -> halves. Built once
 * for each ISA. A group of keys lies by channel, 32 adjacent tokens each, like a panel of packed
 * keys. */
#include "attn_i16.h"
#include "cpu/vector/vec.h"
#include "device/planes.h"

enum { NK = VW * NV };

/* minimum + code * step, rounded once; written as runs of n_run floats, `stride` apart */
VEC_INLINE void block(int bits, const uint8_t *at, float *y, int n_run, int stride)
{
    const vf step = v_set1(v_f16(at)), min = v_set1(v_f16(at + 2));

    _Pragma("GCC unroll 8") for (int i = 0; i < KIVI_GROUP; i += VW)
        v_store(y + i / n_run * stride + i % n_run, v_fma(v_codes(bits, at + 4, i), step, min));
}

VEC_INLINE void group(int bits, const uint8_t *at, int hd, float *kp)
{
    for (int c = 0; c < hd; c++, at += 4 + 4 * bits)
        block(bits, at, kp + c * NK, NK, hd * NK);
}

VEC_INLINE void value(int bits, const uint8_t *at, int hd, float *y)
{
    for (int c = 0; c < hd; c += KIVI_GROUP, at += 4 + 4 * bits)
        block(bits, at, y + c, KIVI_GROUP, 0);
}

static void group_any(int bits, const uint8_t *at, int hd, float *kp)
{
    if (bits == 4)
        group(4, at, hd, kp);
    else
        group(2, at, hd, kp);
}

static void value_any(int bits, const uint8_t *at, int hd, float *y)
{
    if (bits == 4)
        value(4, at, hd, y);
    else
        value(2, at, hd, y);
}

VEC_INLINE void planes(int bits, int hd, const uint8_t *block, int token, const uint8_t *row,
                       uint8_t *y)
{
    const uint8_t *first = cb_planes_first(bits, hd, block, token);
    const uint8_t *step = block, *min = block + 2 * hd;
    const vf unit = v_set1(cb_planes_step(bits)), middle = v_set1(cb_planes_middle(bits));
    int8_t code[16];

    for (int c = 0; c < hd; c += 16, first += 64 * bits, row += cb_planes_row_bytes(bits, 16)) {
        cb_planes_codes(bits, first, row, code);
        for (int i = 0; i < 16; i += VW, y += 2 * VW, step += 2 * VW, min += 2 * VW)
            v_store_f16(y, v_fma(v_add(v_load_i8(code + i), middle), v_mul(v_load_f16(step), unit),
                                 v_load_f16(min)));
    }
}

static void planes_any(int bits, int hd, const uint8_t *block, int token, const uint8_t *row,
                       void *y)
{
    if (bits == 4)
        planes(4, hd, block, token, row, y);
    else
        planes(2, hd, block, token, row, y);
}

const struct kern_kivi VEC_NAME(cb_kivi_) = { .group = group_any,
                                              .value = value_any,
                                              .planes = planes_any,
                                              .group_i16 = VEC_KIVI_GROUP_I16,
                                              .values_i16 = VEC_KIVI_VALUES_I16 };
