/* SPDX-License-Identifier: MIT */
/* vec_neon.h - four floats; 8 x 2 accumulators of the 32 registers. */
#include <arm_neon.h>

typedef float32x4_t vf;
enum { VW = 4, MR = 8, NV = 2, ANY_POWER = 0 };

/* how attn_kivi.c prepares blocks for integer products */
#define VEC_KIVI_GROUP_I16  NULL
#define VEC_KIVI_VALUES_I16 NULL

VEC_INLINE vf v_load(const float *p)
{
    return vld1q_f32(p);
}

VEC_INLINE void v_store(float *p, vf x)
{
    vst1q_f32(p, x);
}

VEC_INLINE vf v_load_n(const float *p, int n)
{
    float x[4] = { 0 };
    memcpy(x, p, (size_t)n * sizeof *x);
    return vld1q_f32(x);
}

VEC_INLINE void v_store_n(float *p, vf x, int n)
{
    float y[4];
    vst1q_f32(y, x);
    memcpy(p, y, (size_t)n * sizeof *y);
}

VEC_INLINE vf v_set1(float a)
{
    return vdupq_n_f32(a);
}

VEC_INLINE vf v_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}

VEC_INLINE vf v_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}

VEC_INLINE vf v_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}

VEC_INLINE vf v_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}

VEC_INLINE vf v_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}

VEC_INLINE vf v_max(vf a, vf b)
{
    return vmaxq_f32(a, b);
}

VEC_INLINE vf v_min(vf a, vf b)
{
    return vminq_f32(a, b);
}

VEC_INLINE vf v_abs(vf a)
{
    return vabsq_f32(a);
}

VEC_INLINE vf v_round(vf a)
{
    return vrndnq_f32(a);
}

VEC_INLINE vf v_ldexp(vf x, vf n)
{
    const int32x4_t e = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return vmulq_f32(x, vreinterpretq_f32_s32(vshlq_n_s32(e, 23)));
}

VEC_INLINE vf v_keep_ge(vf x, vf lim, vf y)
{
    return vreinterpretq_f32_u32(vandq_u32(vcgeq_f32(x, lim), vreinterpretq_u32_f32(y)));
}

VEC_INLINE unsigned v_not_below(vf x, vf lim)
{
    const uint32x4_t bit = { 1, 2, 4, 8 };
    return vaddvq_u32(vbicq_u32(bit, vcltq_f32(x, lim)));
}

VEC_INLINE vf v_swap(vf a)
{
    return vrev64q_f32(a);
}

VEC_INLINE float v_hsum(vf a)
{
    return vaddvq_f32(a);
}

VEC_INLINE float v_hmax(vf a)
{
    return vmaxvq_f32(a);
}

VEC_INLINE float v_f16(const void *p)
{
    __fp16 h;
    memcpy(&h, p, sizeof h);
    return (float)h;
}

VEC_INLINE vf v_load_f16(const void *p)
{
    uint16_t h[4];
    memcpy(h, p, sizeof h);
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h)));
}

VEC_INLINE vf v_load_bf16(const void *p)
{
    uint16_t h[4];
    memcpy(h, p, sizeof h);
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(h), 16));
}

VEC_INLINE vf v_load_i8(const void *p)
{
    int32_t four;
    int16x8_t w;
    memcpy(&four, p, sizeof four);
    w = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(w)));
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
    uint16_t h[4];
    vst1_u16(h, vreinterpret_u16_f16(vcvt_f16_f32(x)));
    memcpy(p, h, sizeof h);
}

VEC_INLINE void v_store_bf16(void *p, vf x)
{
    const uint32x4_t u = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    const uint32x4_t near = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd);
    const uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
    uint16_t h[4];
    vst1_u16(h, vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), near, quiet), 16));
    memcpy(p, h, sizeof h);
}

VEC_INLINE void v_store_i8(void *p, vf x)
{
    const int16x4_t w = vqmovn_s32(vcvtnq_s32_f32(x));
    int8_t b[8];
    vst1_s8(b, vqmovn_s16(vcombine_s16(w, w)));
    memcpy(p, b, 4);
}

VEC_INLINE void v_transpose(vf *t)
{
    const float32x4_t a = vtrn1q_f32(t[0], t[1]), b = vtrn2q_f32(t[0], t[1]);
    const float32x4_t c = vtrn1q_f32(t[2], t[3]), d = vtrn2q_f32(t[2], t[3]);
    t[0] = vcombine_f32(vget_low_f32(a), vget_low_f32(c));
    t[1] = vcombine_f32(vget_low_f32(b), vget_low_f32(d));
    t[2] = vcombine_f32(vget_high_f32(a), vget_high_f32(c));
    t[3] = vcombine_f32(vget_high_f32(b), vget_high_f32(d));
}
