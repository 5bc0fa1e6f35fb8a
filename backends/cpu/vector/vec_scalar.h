/* SPDX-License-Identifier: MIT */
/* vec_scalar.h - four floats in portable GNU C: for machines without a vector header of their
 * own. */
#include "gguf/dtype.h"

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi_ __attribute__((vector_size(16)));
enum { VW = 4, MR = 2, NV = 2, ANY_POWER = 0 };

/* how attn_kivi.c prepares blocks for integer products */
#define VEC_KIVI_GROUP_I16  NULL
#define VEC_KIVI_VALUES_I16 NULL

VEC_INLINE vf v_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}

VEC_INLINE void v_store(float *p, vf x)
{
    memcpy(p, &x, sizeof x);
}

VEC_INLINE vf v_load_n(const float *p, int n)
{
    vf x = { 0 };
    for (int i = 0; i < n; i++)
        x[i] = p[i];
    return x;
}

VEC_INLINE void v_store_n(float *p, vf x, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = x[i];
}

VEC_INLINE vf v_set1(float a)
{
    return (vf){ a, a, a, a };
}

VEC_INLINE vf v_add(vf a, vf b)
{
    return a + b;
}

VEC_INLINE vf v_sub(vf a, vf b)
{
    return a - b;
}

VEC_INLINE vf v_mul(vf a, vf b)
{
    return a * b;
}

VEC_INLINE vf v_div(vf a, vf b)
{
    return a / b;
}

VEC_INLINE vf v_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

VEC_INLINE vf v_pick_(vi_ mask, vf a, vf b)
{
    return (vf)((mask & (vi_)a) | (~mask & (vi_)b));
}

VEC_INLINE vf v_max(vf a, vf b)
{
    return v_pick_(a > b, a, b);
}

VEC_INLINE vf v_min(vf a, vf b)
{
    return v_pick_(a < b, a, b);
}

VEC_INLINE vf v_abs(vf a)
{
    return (vf)((vi_)a & 0x7fffffff);
}

/* adding 1.5 * 2^23 rounds off the fraction */
VEC_INLINE vf v_round(vf a)
{
    const vf magic = v_set1(12582912.0f);
    return (a + magic) - magic;
}

VEC_INLINE vf v_ldexp(vf x, vf n)
{
    return x * (vf)((__builtin_convertvector(n, vi_) + 127) << 23);
}

VEC_INLINE vf v_keep_ge(vf x, vf lim, vf y)
{
    return (vf)((x >= lim) & (vi_)y);
}

VEC_INLINE unsigned v_not_below(vf x, vf lim)
{
    const vi_ below = x < lim;
    return (unsigned)((1 & ~below[0]) | (2 & ~below[1]) | (4 & ~below[2]) | (8 & ~below[3]));
}

VEC_INLINE vf v_swap(vf a)
{
    return __builtin_shufflevector(a, a, 1, 0, 3, 2);
}

VEC_INLINE float v_hsum(vf a)
{
    return (a[0] + a[2]) + (a[1] + a[3]);
}

VEC_INLINE float v_hmax(vf a)
{
    const vf b = v_max(a, __builtin_shufflevector(a, a, 2, 3, 0, 1));
    return b[0] > b[1] ? b[0] : b[1];
}

VEC_INLINE uint16_t v_u16_(const void *p, int i)
{
    uint16_t u;
    memcpy(&u, (const char *)p + 2 * i, sizeof u);
    return u;
}

VEC_INLINE float v_f16(const void *p)
{
    return cb_f16_to_f32(v_u16_(p, 0));
}

VEC_INLINE vf v_load_f16(const void *p)
{
    return (vf){ cb_f16_to_f32(v_u16_(p, 0)), cb_f16_to_f32(v_u16_(p, 1)),
                 cb_f16_to_f32(v_u16_(p, 2)), cb_f16_to_f32(v_u16_(p, 3)) };
}

VEC_INLINE vf v_load_bf16(const void *p)
{
    return (vf){ cb_bf16_to_f32(v_u16_(p, 0)), cb_bf16_to_f32(v_u16_(p, 1)),
                 cb_bf16_to_f32(v_u16_(p, 2)), cb_bf16_to_f32(v_u16_(p, 3)) };
}

VEC_INLINE vf v_load_i8(const void *p)
{
    const int8_t *q = p;
    return (vf){ q[0], q[1], q[2], q[3] };
}

VEC_INLINE vf v_codes(int bits, const uint8_t *code, int i)
{
    int8_t y[VW];

    for (int j = 0; j < VW; j++)
        y[j] = (int8_t)(code[(i + j) % (4 * bits)] >> ((i + j) / (4 * bits) * bits) &
                        ((1 << bits) - 1));
    return v_load_i8(y);
}

VEC_INLINE void v_store_f16(void *p, vf x)
{
    for (int i = 0; i < VW; i++) {
        const uint16_t u = cb_f32_to_f16(x[i]);
        memcpy((char *)p + 2 * i, &u, sizeof u);
    }
}

VEC_INLINE void v_store_bf16(void *p, vf x)
{
    for (int i = 0; i < VW; i++) {
        const uint16_t u = cb_f32_to_bf16(x[i]);
        memcpy((char *)p + 2 * i, &u, sizeof u);
    }
}

VEC_INLINE void v_store_i8(void *p, vf x)
{
    for (int i = 0; i < VW; i++)
        ((int8_t *)p)[i] = (int8_t)x[i];
}

VEC_INLINE void v_transpose(vf *t)
{
    for (int i = 0; i < VW; i++)
        for (int j = i + 1; j < VW; j++) {
            const float x = t[i][j];
            t[i][j] = t[j][i];
            t[j][i] = x;
        }
}
