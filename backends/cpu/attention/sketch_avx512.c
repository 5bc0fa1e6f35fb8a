/* SPDX-License-Identifier: MIT */
/* sketch_avx512.c - scores by sketched keys with AVX-512 and VNNI: codes are multiplied four
 * channels of 16 tokens at a time, for up to eight query heads that share the unpacked codes. */
#include <immintrin.h>

#include "cpu/vector/kern_vec.h"
#include "sketch_tile.h"

#define UNROLL _Pragma("GCC unroll 16")

INLINE __m512 half(const uint16_t *x)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)x));
}

/* 16 lanes added as a tree: i + (i + 8), + 4, + 2, + 1 */
INLINE float tree(__m512 x)
{
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}

/* Query head q in a block -> head h of the tile */
INLINE void open_head(struct tile *t, int h, int bits, int n, const uint16_t *block, const float *q)
{
    float w[SKETCH_MAX_HD], top;
    __m512 base = _mm512_setzero_ps(), most = _mm512_setzero_ps(), inv;

    for (int c = 0; c < n; c += 16) {
        const __m512 x = _mm512_loadu_ps(q + c), y = _mm512_mul_ps(x, half(block + c));
        base = _mm512_fmadd_ps(x, half(block + n + c), base);
        most = _mm512_max_ps(_mm512_abs_ps(y), most);
        _mm512_storeu_ps(w + c, y);
    }
    top = _mm512_reduce_max_ps(most);
    inv = _mm512_set1_ps(top > 0 ? 127 / top : 0);
    for (int c = 0; c < n; c += 16) {
        const __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(w + c), inv));
        _mm_store_si128((void *)(t->w[h] + c), _mm512_cvtsepi32_epi8(i));
    }
    t->mult[h] = (int16_t)cb_sketch_mult(bits, top);
    t->base[h] = (int16_t)cb_sketch_whole(tree(base), INT16_MAX);
}

INLINE void open_tile(struct tile *t, int m, int bits, int hd, const uint8_t *block, const float *q)
{
    const int n = cb_sketch_pad(hd);

    for (int h = 0; h < m; h++)
        open_head(t, h, bits, n, (const uint16_t *)(const void *)block, q + h * n);
}

INLINE __m512i four(const int8_t *w)
{
    int32_t x;
    memcpy(&x, w, sizeof x);
    return _mm512_set1_epi32(x);
}

/* The scores of a block's tokens for m query heads */
INLINE void scan_tile(int m, int bits, int n, const uint8_t *code, const struct tile *t,
                      int16_t *score, int stride)
{
    const int parts = bits == 2 ? 4 : 2; /* of a byte */
    const __m512i mask = _mm512_set1_epi8((char)((1 << bits) - 1));
    const int shift = cb_sketch_shift(bits);

    for (int g = 0; g < SKETCH_BLOCK; g += 32) {
        __m512i sum[TILE][2];
        UNROLL
        for (int h = 0; h < m; h++)
            sum[h][0] = sum[h][1] = _mm512_setzero_si512();
        for (int c = 0; c < n; c += 32 / bits, code += 128) {
            const __m512i a = _mm512_loadu_si512(code), b = _mm512_loadu_si512(code + 64);
            ask_ahead(bits, n, code, 128);
            UNROLL
            for (int k = 0; k < parts; k++) {
                const __m512i x =
                    _mm512_and_si512(_mm512_srli_epi16(a, (unsigned)(bits * k)), mask);
                const __m512i y =
                    _mm512_and_si512(_mm512_srli_epi16(b, (unsigned)(bits * k)), mask);
                UNROLL
                for (int h = 0; h < m; h++) {
                    const __m512i w = four(t->w[h] + c + 4 * k);
                    sum[h][0] = _mm512_dpbusd_epi32(sum[h][0], x, w);
                    sum[h][1] = _mm512_dpbusd_epi32(sum[h][1], y, w);
                }
            }
        }
        UNROLL
        for (int h = 0; h < m; h++) {
            const __m512i s = _mm512_packs_epi32(_mm512_srai_epi32(sum[h][0], (unsigned)shift),
                                                 _mm512_srai_epi32(sum[h][1], (unsigned)shift));
            const __m512i x = _mm512_mulhrs_epi16(s, _mm512_set1_epi16(t->mult[h]));
            _mm512_storeu_si512(score + h * stride + g,
                                _mm512_adds_epi16(x, _mm512_set1_epi16(t->base[h])));
        }
    }
}

static uint32_t weigh(const int16_t *score, int n, int16_t *top)
{
    const __m512i table = _mm512_loadu_si512(cb_sketch_weight), ones = _mm512_set1_epi16(1);
    __m512i most = _mm512_set1_epi16(INT16_MIN), sum = _mm512_setzero_si512();
    __m256i x;
    __m128i y;

    for (int j = 0; j < n; j += 32)
        most = _mm512_max_epi16(_mm512_loadu_si512(score + j), most);
    x = _mm256_max_epi16(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
    y = _mm_max_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_xor_si128(y, _mm_set1_epi16(0x7fff)); /* the least unsigned is the largest signed */
    *top = (int16_t)(_mm_extract_epi16(_mm_minpos_epu16(y), 0) ^ 0x7fff);
    most = _mm512_set1_epi16(*top);
    for (int j = 0; j < n; j += 32) { /* differences are unsigned */
        const __m512i below = _mm512_sub_epi16(most, _mm512_loadu_si512(score + j));
        const __m512i w =
            _mm512_srlv_epi16(_mm512_permutexvar_epi16(below, table), _mm512_srli_epi16(below, 5));
        sum = _mm512_dpwssd_epi32(sum, w, ones);
    }
    return (uint32_t)_mm512_reduce_add_epi32(sum);
}

static void rank(const int16_t *score, int stride, const int16_t *lse, int heads, int n,
                 uint16_t *out)
{
    const __m512i zero = _mm512_setzero_si512(), least = _mm512_set1_epi16(1 - SKETCH_BUCKETS);

    for (int j = 0; j < n; j += 32) {
        __m512i best = least;
        for (int h = 0; h < heads; h++) {
            const __m512i s = _mm512_loadu_si512(score + (size_t)h * (size_t)stride + j);
            best = _mm512_max_epi16(best, _mm512_subs_epi16(s, _mm512_set1_epi16(lse[h])));
        }
        best = _mm512_min_epi16(best, zero);
        _mm512_storeu_si512(out + j, _mm512_sub_epi16(zero, best));
    }
}

/* Slots of the 32 ranks in `mask`, in order */
INLINE int put(uint32_t mask, int from, int32_t *idx)
{
    int n = 0;

    for (; mask; mask &= mask - 1)
        idx[n++] = from + __builtin_ctz(mask);
    return n;
}

static int pick(const uint16_t *x, int n, int limit, int *n_equal, int from, int32_t *idx)
{
    const __m512i y = _mm512_set1_epi16((short)limit);
    int out = 0;

    for (int j = 0; j < n; j += 32) {
        const uint32_t in = n - j < 32 ? (1u << (n - j)) - 1 : UINT32_MAX;
        const __m512i r = _mm512_maskz_loadu_epi16(in, x + j);
        uint32_t below = _mm512_mask_cmplt_epu16_mask(in, r, y);
        uint32_t equal = _mm512_mask_cmpeq_epi16_mask(in, r, y);
        for (; equal && *n_equal > 0; equal &= equal - 1, --*n_equal)
            below |= equal & -equal;
        out += put(below, from + j, idx + out);
    }
    return out;
}

const struct kern_sketch cb_sketch_kern_avx512 = { scan, weigh, rank, pick };
