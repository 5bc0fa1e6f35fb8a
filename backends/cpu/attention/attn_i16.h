/* SPDX-License-Identifier: MIT */
/* attn_i16.h - attention of a block of keys by integer products, for the ISAs that have them. */
#ifndef ATTN_I16_H
#define ATTN_I16_H

#include "cpu/vector/kern_vec.h"
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

extern const struct kern_qk cb_qk_q8_avx512, cb_qk_half_avx512;
extern const struct kern_prepack cb_prepack_half_avx512, cb_prepack_q8_avx512;

/* rows -> entries from `at` on of struct i16_values[hd / 32] */
void cb_pack_v_q8_avx512(const struct kern_rows *v, int hd, int at, void *vp);
void cb_pack_v_half_avx512(const struct kern_rows *v, int hd, int at, void *vp);
void cb_pack_v_i16_avx512(const struct kern_rows *v, int hd, int at, void *vp);
void cb_kivi_group_i16_avx512(int bits, const uint8_t *group, int hd, void *panel);
void cb_kivi_values_i16_avx512(int bits, const uint8_t *const *row, int hd, void *vp, int at);
void cb_kivi_logits_i8(int bits, const uint8_t *group, int n, const float *const *q, float scale,
                       int rows, int hd, const uint8_t *ahead, float *s);
void cb_kivi_values_i8(int bits, const uint8_t *const *row, const struct kern_soft *soft, int hd,
                       const uint8_t *ahead, float *o);
void cb_pv_i16_avx512(const struct kern_soft *s, enum kv_type t, const void *vp, int n, int hd_pad,
                      float *o);

void cb_pack_v_q8_neon(const struct kern_rows *v, int hd, int at, void *vp);
void cb_pv_q8_neon(const struct kern_soft *s, enum kv_type t, const void *vp, int n, int hd_pad,
                   float *o);
extern const struct kern_qk cb_qk_q8_neon;
extern const struct kern_prepack cb_prepack_q8_neon;

/* The AVX2 versions, with panels of 16 keys */
extern const struct kern_qk cb_qk_half_avx2;
extern const struct kern_prepack cb_prepack_half_avx2;
void cb_pack_v_half_avx2(const struct kern_rows *v, int hd, int at, void *vp);
void cb_pack_v_i16_avx2(const struct kern_rows *v, int hd, int at, void *vp);
void cb_kivi_group_i16_avx2(int bits, const uint8_t *group, int hd, void *panel);
void cb_kivi_values_i16_avx2(int bits, const uint8_t *const *row, int hd, void *vp, int at);
void cb_pv_i16_avx2(const struct kern_soft *s, enum kv_type t, const void *vp, int n, int hd_pad,
                    float *o);
void cb_pv_prepacked_half_avx2(const struct kern_soft *s, const void *codes, const float *step,
                               const void *ahead, int hd, float *o);

/* The same product with prepacked values. */
void cb_pv_prepacked_half_avx512(const struct kern_soft *s, const void *codes, const float *step,
                                 const void *ahead, int hd, float *o);
void cb_pv_prepacked_q8_avx512(const struct kern_soft *s, const void *codes, const float *step,
                               const void *ahead, int hd, float *o);

#ifdef __AVX512BW__
#include <immintrin.h>

/* Packs the low halves of two vectors of integers as pairs. Numbers 16 apart become neighbours
 * without shuffling. */
static inline __m512i cb_i16_pair(__m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaau, a, _mm512_slli_epi32(b, 16));
}

/* acc += products of pairs of 16-bit integers, or of four bytes. In assembler: compilers copy every
 * sum of a tile at each step. */
static inline void cb_dot_i16(__m512i *acc, __m512i x, __m512i y)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(*acc) : "v"(x), "v"(y));
}

static inline void cb_dot_bytes(__m512i *acc, __m512i unsigned_x, __m512i y)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*acc) : "v"(unsigned_x), "v"(y));
}

static inline void cb_dot_u8_i8(__m512i *acc, __m512i x, const int32_t *y)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(*acc) : "v"(x), "m"(*y));
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
#include <immintrin.h>
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
    sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(x, _mm256_set1_epi32(pair)));
    sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(y, _mm256_set1_epi32(pair)));
    /* goes row by row: the compiler would keep so many products alive that sums spill to memory */
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
