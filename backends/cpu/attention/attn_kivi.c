/* SPDX-License-Identifier: MIT */
/* attn_kivi.c - blocks of 32 numbers on 2 or 4 bits -> floats. Built once for each ISA. A group of
 * keys lies by channel, 32 adjacent tokens each, like a panel of packed keys. */
#include "attn_i16.h"
#include "cpu/vector/vec.h"

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

const struct kern_kivi VEC_NAME(cb_kivi_) = { group_any,          value_any,
                                              VEC_KIVI_GROUP_I16, VEC_KIVI_VALUES_I16,
                                              VEC_KIVI_LOGITS,    VEC_KIVI_PV };
