/* SPDX-License-Identifier: MIT */
/* attn_i16.h - attention of a block of keys by integer products, for the ISAs that have them. */
#ifndef ATTN_I16_H
#define ATTN_I16_H

#include "cpu/vector/kern_vec.h"
#ifdef VEC_ISA
#include "cpu/vector/vec.h"
#endif
#include "device/kivi.h"

/* Largest code of a number in an f16, bf16 or KIVI row */
enum { I16_ROW_TOP = 8191 };

/* 32 dims of a block's values: codes in pairs of keys, so that a product sums two keys, and the
 * quantisation step of each key. */
struct i16_values {
    int16_t code[KEY_BLOCK * 32]; /* [KEY_BLOCK / 2][32][2] */
    float scale[KEY_BLOCK];
};

/* The same for a prepacked block of q8_0 values */
struct i8_values {
    int8_t code[KEY_BLOCK * 32];
    uint16_t scale[KEY_BLOCK]; /* halves, as stored */
};

#ifdef VEC_ISA
/* What the files of a tier's dot products take from each other. pack: rows -> entries from `at` on
 * of struct i16_values[hd / 32]; pv: products with packed and with prepacked values. */
extern const struct kern_qk DOT_NAME(cb_qk_q8_), DOT_NAME(cb_qk_half_);
extern const struct kern_prepack DOT_NAME(cb_prepack_half_), DOT_NAME(cb_prepack_q8_);
void DOT_NAME(cb_pack_v_half_)(const struct kern_rows *v, int hd, int at, void *vp);
void DOT_NAME(cb_pack_v_i16_)(const struct kern_rows *v, int hd, int at, void *vp);
void DOT_NAME(cb_pv_i16_)(const struct kern_soft *s, enum kv_type t, const void *vp, int n,
                          int hd_pad, float *o);
void DOT_NAME(cb_pv_prepacked_half_)(const struct kern_soft *s, const void *codes,
                                     const float *step, const void *ahead, int hd, float *o);
void DOT_NAME(cb_pv_prepacked_q8_)(const struct kern_soft *s, const void *codes, const float *step,
                                   const void *ahead, int hd, float *o);
#endif
void cb_pack_v_i16_avx2(const struct kern_rows *v, int hd, int at, void *vp);

void cb_kivi_group_i16_avx2(int bits, const uint8_t *group, int hd, void *panel);
void cb_kivi_values_i16_avx2(int bits, const uint8_t *const *row, int hd, void *vp, int at);
void cb_kivi_group_i16_avx512(int bits, const uint8_t *group, int hd, void *panel);
void cb_kivi_values_i16_avx512(int bits, const uint8_t *const *row, int hd, void *vp, int at);

#ifdef __AVX512BW__
#include "cpu/vector/dot_avx512.h"

/* Packs the low halves of two vectors of integers as pairs. Numbers 16 apart become neighbours
 * without shuffling. */
static inline __m512i cb_i16_pair(__m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaau, a, _mm512_slli_epi32(b, 16));
}

/* The heads of 16 quantised blocks -> their steps and minima */
static inline void cb_kivi_heads(__m512i h, __m512 *step, __m512 *min)
{
    *step = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(h));
    *min = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(h, 16)));
}

/* 16 stored halves -> floats */
static inline __m512 cb_halves(const void *h)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(h));
}
#endif

#if defined __AVX2__ && defined __FMA__ && !defined __AVX512BW__
#include "cpu/vector/dot_avx2.h"
#include <string.h>

/* x / step to the nearest whole number, in the low 16 bits */
static inline __m256i cb_i16_code(__m256 x, __m256 inv)
{
    return _mm256_castps_si256(_mm256_fmadd_ps(x, inv, _mm256_set1_ps(12582912.0f)));
}

/* Packs the low halves of two vectors of integers as pairs */
static inline __m256i cb_i16_pair(__m256i a, __m256i b)
{
    return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
}

/* sum += a row's pair of codes at p times 8 pairs each of x and y */
static inline __attribute__((always_inline)) void cb_i16_add(__m256i sum[2], __m256i x, __m256i y,
                                                             const void *p)
{
    int32_t pair;

    memcpy(&pair, p, sizeof pair);
    sum[0] = cb_dot_words(sum[0], x, _mm256_set1_epi32(pair));
    sum[1] = cb_dot_words(sum[1], y, _mm256_set1_epi32(pair));
    /* row by row: the compiler would keep more products alive than there are registers for */
    __asm__("" : "+x"(sum[0]), "+x"(sum[1]));
}
#endif

/* Makes the row count a compile-time constant for each height of a tile. */
#define I16_HEIGHT(i, CALL)                                                                        \
    case i:                                                                                        \
        CALL(i);                                                                                   \
        break;
#define I16_HEIGHTS(m, CALL)                                                                       \
    switch (m) {                                                                                   \
        I16_HEIGHT(1, CALL)                                                                        \
        I16_HEIGHT(2, CALL)                                                                        \
        I16_HEIGHT(3, CALL)                                                                        \
        I16_HEIGHT(4, CALL)                                                                        \
        I16_HEIGHT(5, CALL)                                                                        \
        I16_HEIGHT(6, CALL)                                                                        \
        I16_HEIGHT(7, CALL)                                                                        \
        I16_HEIGHT(8, CALL)                                                                        \
        I16_HEIGHT(9, CALL)                                                                        \
        I16_HEIGHT(10, CALL)                                                                       \
        I16_HEIGHT(11, CALL)                                                                       \
        I16_HEIGHT(12, CALL)                                                                       \
    default:                                                                                       \
        break;                                                                                     \
    }

#endif
