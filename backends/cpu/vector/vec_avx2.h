/* SPDX-License-Identifier: MIT */
/* vec_avx2.h - eight floats; 6 x 2 accumulators of the 16 registers. */
#include <immintrin.h>

typedef __m256 vf;
enum { VW = 8, MR = 6, NV = 2, ANY_POWER = 0 };

/* how attn_kivi.c prepares blocks for integer products */
#define VEC_KIVI_GROUP_I16  cb_kivi_group_i16_avx2
#define VEC_KIVI_VALUES_I16 cb_kivi_values_i16_avx2

VEC_INLINE vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

VEC_INLINE void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

VEC_INLINE __m256i v_mask_(int n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
}

VEC_INLINE vf v_load_n(const float *p, int n)
{
    return _mm256_maskload_ps(p, v_mask_(n));
}

VEC_INLINE void v_store_n(float *p, vf x, int n)
{
    _mm256_maskstore_ps(p, v_mask_(n), x);
}

VEC_INLINE vf v_set1(float a)
{
    return _mm256_set1_ps(a);
}

VEC_INLINE vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

VEC_INLINE vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

VEC_INLINE vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

VEC_INLINE vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

VEC_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

VEC_INLINE vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

VEC_INLINE vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

VEC_INLINE vf v_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

VEC_INLINE vf v_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

VEC_INLINE vf v_ldexp(vf x, vf n)
{
    const __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(e, 23)));
}

VEC_INLINE vf v_keep_ge(vf x, vf lim, vf y)
{
    return _mm256_and_ps(_mm256_cmp_ps(x, lim, _CMP_GE_OQ), y);
}

VEC_INLINE unsigned v_not_below(vf x, vf lim)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x, lim, _CMP_NLT_UQ));
}

VEC_INLINE vf v_swap(vf a)
{
    return _mm256_permute_ps(a, 0xb1);
}

VEC_INLINE float v_hsum(vf a)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

VEC_INLINE float v_hmax(vf a)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

VEC_INLINE float v_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

VEC_INLINE vf v_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

VEC_INLINE vf v_load_bf16(const void *p)
{
    const __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}

VEC_INLINE vf v_load_i8(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
}

VEC_INLINE vf v_codes(int bits, const uint8_t *code, int i)
{
    const int n = 4 * bits;
    const __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)(code + i % n));
    const __m128i y = _mm_srli_epi16(x, i / n * bits);
    const __m128i z = _mm_and_si128(y, _mm_set1_epi8((char)((1 << bits) - 1)));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(z));
}

VEC_INLINE void v_store_f16(void *p, vf x)
{
    _mm_storeu_si128(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* the low halves of eight 32-bit lanes */
VEC_INLINE __m128i v_narrow_(__m256i x)
{
    return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

VEC_INLINE void v_store_bf16(void *p, vf x)
{
    const __m256i u = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i near = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i r = _mm256_blendv_epi8(near, quiet, nan);
    _mm_storeu_si128(p, v_narrow_(_mm256_srli_epi32(r, 16)));
}

VEC_INLINE void v_store_i8(void *p, vf x)
{
    const __m256i i = _mm256_cvtps_epi32(x);
    const __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    _mm_storel_epi64(p, _mm_packs_epi16(w, w));
}

/* 8 x 8: pairs, quads, then 128-bit lanes */
VEC_INLINE void v_transpose(vf *t)
{
    vf a[8];

    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i += 2)
    {
        a[i] = _mm256_unpacklo_ps(t[i], t[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(t[i], t[i + 1]);
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i += 4)
    {
        t[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        t[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        t[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        t[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < 4; i++)
    {
        a[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        a[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
    memcpy(t, a, sizeof a);
}
