/* SPDX-License-Identifier: MIT */
/* vec.h - the vector type of the ISA that a source is built for, and functions composed of its few
 * operations. local.mk chooses the header vec_ISA.h by -DVEC_ISA=... It defines: vf, a vector of VW
 * floats; MR, the rows of a register tile of MR x NV vectors; loads, stores, arithmetic,
 * conversions:
 *
 *   v_load v_store v_load_n v_store_n   unaligned; the _n forms touch n < VW floats and load 0
 *                                       into the other lanes
 *   v_set1 v_add v_sub v_mul v_div v_max v_min v_abs
 *   v_fma(a, b, c)                      a * b + c
 *   v_round                             to the nearest whole number, for |x| < 2^22
 *   v_ldexp(x, n)                       x * 2^n for whole n in [-126, 127]; any n is safe with
 *                                       ANY_POWER, a number of vec_ISA.h
 *   v_keep_ge(x, lim, y)                y where x >= lim, else 0
 *   v_not_below(x, lim)                 a bit for each lane, 0 where x < lim
 *   v_swap                              lanes 1 0 3 2 ...
 *   v_hsum v_hmax                       a tree over the lanes
 *   v_f16                               one stored half -> float
 *   v_load_f16 v_load_bf16 v_load_i8    VW stored elements -> floats
 *   v_codes(bits, code, i)              codes i.. of a block of 32 on 2 or 4 bits (kivi.c)
 *   v_store_f16 v_store_bf16            to nearest even
 *   v_store_i8                          whole numbers in [-127, 127]
 *   v_transpose(t)                      VW vectors in place */
#ifndef VEC_H
#define VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define VEC_STR_(x)    #x
#define VEC_STR(x)     VEC_STR_(x)
#define VEC_CAT_(a, b) a##b
#define VEC_CAT(a, b)  VEC_CAT_(a, b)

/* VEC_NAME(cb_vec_) is cb_vec_avx2 in the build for AVX2 */
#define VEC_NAME(prefix) VEC_CAT(prefix, VEC_ISA)

/* Files with dot products are built again for ISAs that add such instructions to those of VEC_ISA:
 * DOT_NAME(cb_dots_) is cb_dots_avx512vnni there. */
#ifndef DOT_ISA
#define DOT_ISA VEC_ISA
#endif
#define DOT_NAME(prefix) VEC_CAT(prefix, DOT_ISA)

#define VEC_INLINE static inline __attribute__((always_inline, unused))

#define VEC_FILE_(isa) vec_##isa.h
#define VEC_FILE(isa)  VEC_FILE_(isa)
#include VEC_STR(VEC_FILE(VEC_ISA))

/* 2^x for x <= 126; 0 below -126. A minimax polynomial of degree 5 on [-1/2, 1/2], 1e-7 relative.
 */
VEC_INLINE vf v_exp2(vf x)
{
    const vf lim = v_set1(-126.0f), y = ANY_POWER ? x : v_max(x, lim);
    const vf n = v_round(y), f = v_sub(y, n);
    vf p = v_set1(1.326472730e-3f);

    p = v_fma(p, f, v_set1(9.671512991e-3f));
    p = v_fma(p, f, v_set1(5.550733581e-2f));
    p = v_fma(p, f, v_set1(2.402224243e-1f));
    p = v_fma(p, f, v_set1(6.931470037e-1f));
    p = v_fma(p, f, v_set1(1.0f));
    return v_keep_ge(x, lim, v_ldexp(p, n));
}

VEC_INLINE vf v_exp(vf x)
{
    return v_exp2(v_mul(v_min(x, v_set1(87.0f)), v_set1(1.44269504f)));
}

/* 1 - 2 / (1 + e^2x), 1e-7 absolute */
VEC_INLINE vf v_tanh(vf x)
{
    const vf one = v_set1(1.0f), e = v_exp(v_add(x, x));
    return v_sub(one, v_div(v_set1(2.0f), v_add(one, e)));
}

#endif
