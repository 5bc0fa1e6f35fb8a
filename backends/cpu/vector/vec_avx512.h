/* SPDX-License-Identifier: MIT */
/* vec_avx512.h - sixteen floats; 12 x 2 accumulators of the 32 registers. */
#include <immintrin.h>

typedef __m512 vf;
enum { VW = 16, MR = 12, NV = 2, ANY_POWER = 1 };

/* how attn_kivi.c prepares blocks for integer products */
#define VEC_KIVI_GROUP_I16  cb_kivi_group_i16_avx512
#define VEC_KIVI_VALUES_I16 cb_kivi_values_i16_avx512

VEC_INLINE vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

VEC_INLINE void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

VEC_INLINE vf v_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

VEC_INLINE void v_store_n(float *p, vf x, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}

VEC_INLINE vf v_set1(float a)
{
    return _mm512_set1_ps(a);
}

VEC_INLINE vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

VEC_INLINE vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

VEC_INLINE vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

VEC_INLINE vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

VEC_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

VEC_INLINE vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

VEC_INLINE vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

VEC_INLINE vf v_abs(vf a)
{
    return _mm512_abs_ps(a);
}

VEC_INLINE vf v_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

VEC_INLINE vf v_ldexp(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}

VEC_INLINE vf v_keep_ge(vf x, vf lim, vf y)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, lim, _CMP_GE_OQ), y);
}

VEC_INLINE unsigned v_not_below(vf x, vf lim)
{
    return _mm512_cmp_ps_mask(x, lim, _CMP_NLT_UQ);
}

VEC_INLINE vf v_swap(vf a)
{
    return _mm512_permute_ps(a, 0xb1);
}

VEC_INLINE float v_hsum(vf a)
{
    return _mm512_reduce_add_ps(a);
}

VEC_INLINE float v_hmax(vf a)
{
    return _mm512_reduce_max_ps(a);
}

VEC_INLINE float v_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

VEC_INLINE vf v_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

VEC_INLINE vf v_load_bf16(const void *p)
{
    const __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

VEC_INLINE vf v_load_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}

VEC_INLINE vf v_codes(int bits, const uint8_t *code, int i)
{
    const __m128i x = bits == 4 ? _mm_loadu_si128((const __m128i *)(const void *)code)
                                : _mm_loadl_epi64((const __m128i *)(const void *)code);
    const int shift = i / (4 * bits) * bits;
    const __m128i a = _mm_srli_epi16(x, shift);
    const __m128i y = bits == 4 ? a : _mm_unpacklo_epi64(a, _mm_srli_epi16(x, shift + bits));
    const __m128i z = _mm_and_si128(y, _mm_set1_epi8((char)((1 << bits) - 1)));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(z));
}

VEC_INLINE void v_store_f16(void *p, vf x)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* in integers: the bf16 instruction would flush denormals to 0 */
VEC_INLINE void v_store_bf16(void *p, vf x)
{
    const __m512i u = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), one);
    const __m512i near = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i r = _mm512_mask_mov_epi32(near, nan, quiet);
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
}

VEC_INLINE void v_store_i8(void *p, vf x)
{
    _mm_storeu_si128(p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
}

/* 16 x 16: pairs, quads, then 128-bit lanes twice */
VEC_INLINE void v_transpose(vf *t)
{
    vf a[16];

    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i += 2)
    {
        a[i] = _mm512_unpacklo_ps(t[i], t[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(t[i], t[i + 1]);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i += 4)
    {
        const __m512d p = _mm512_castps_pd(a[i]), q = _mm512_castps_pd(a[i + 1]);
        const __m512d r = _mm512_castps_pd(a[i + 2]), s = _mm512_castps_pd(a[i + 3]);
        t[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, r));
        t[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, r));
        t[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(q, s));
        t[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(q, s));
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < 4; i++)
    {
        a[i] = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        a[i + 4] = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        a[i + 8] = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        a[i + 12] = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < 4; i++)
    {
        t[i] = _mm512_shuffle_f32x4(a[i], a[i + 8], 0x88);
        t[i + 8] = _mm512_shuffle_f32x4(a[i], a[i + 8], 0xdd);
        t[i + 4] = _mm512_shuffle_f32x4(a[i + 4], a[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(a[i + 4], a[i + 12], 0xdd);
    }
}
