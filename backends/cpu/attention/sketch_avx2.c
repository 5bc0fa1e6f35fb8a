/* SPDX-License-Identifier: MIT */
/* sketch_avx2.c - scores by sketched keys with AVX2: codes are multiplied in pairs of channels of
 * eight tokens at a time, for up to eight query heads that share the unpacked codes. */
#include <immintrin.h>

#include "cpu/vector/kern_vec.h"
#include "sketch_tile.h"

#define UNROLL _Pragma("GCC unroll 8")

INLINE __m256 half(const uint16_t *x)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)x));
}

INLINE __m256 absolute(__m256 x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

/* the rest of a tree over 16 lanes: i + (i + 4), + 2, + 1 */
INLINE float tree(__m256 a)
{
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}

INLINE float largest(__m256 a)
{
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
}

/* Query head q in a block -> head h of the tile */
INLINE void open_head(struct tile *t, int h, const struct shape *s, const uint16_t *block,
                      const float *q)
{
    const int n = cb_sketch_pad(s->hd), n_scored = s->n_strip * SKETCH_STRIP;
    const __m256 middle = _mm256_set1_ps(cb_sketch_middle(s->bits));
    float w[SKETCH_MAX_HD], top;
    __m256 base[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() }, most = base[0], inv;

    for (int i = 0; i < n_scored; i += 8) {
        const int c = channel_at(s, i);
        const __m256 x = _mm256_loadu_ps(q + c), y = _mm256_mul_ps(x, half(block + c));
        base[i / 8 % 2] = _mm256_fmadd_ps(x, half(block + n + c), base[i / 8 % 2]);
        most = _mm256_max_ps(absolute(y), most);
        _mm256_storeu_ps(w + i, y);
    }
    for (int i = n_scored; i < n; i += 8) {
        const int c = channel_at(s, i);
        const __m256 x = _mm256_fmadd_ps(half(block + c), middle, half(block + n + c));
        base[i / 8 % 2] = _mm256_fmadd_ps(_mm256_loadu_ps(q + c), x, base[i / 8 % 2]);
    }
    top = largest(most);
    inv = _mm256_set1_ps(top > 0 ? 127 / top : 0);
    for (int c = 0; c < n_scored; c += 8) {
        const __m256i i = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(w + c), inv));
        const __m128i wide =
            _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
        _mm_storel_epi64((void *)(t->w[h] + c), _mm_packs_epi16(wide, wide));
    }
    t->mult[h] = (int16_t)cb_sketch_mult(s->bits, top);
    t->base[h] = (int16_t)cb_sketch_whole(tree(_mm256_add_ps(base[0], base[1])), INT16_MAX);
}

INLINE void open_tile(struct tile *t, const struct shape *s, const uint8_t *block, const float *q)
{
    for (int h = 0; h < s->m; h++)
        open_head(t, h, s, (const uint16_t *)(const void *)block, q + h * cb_sketch_pad(s->hd));
}

INLINE __m256i four(const int8_t *w)
{
    int32_t x;
    memcpy(&x, w, sizeof x);
    return _mm256_set1_epi32(x);
}

/* Sums of products of eight tokens, whose codes are in one half of a vector of each pair */
INLINE void sum_eight(const struct shape *s, const uint8_t *code, const struct tile *t,
                      __m256i *sum)
{
    const int m = s->m, bits = s->bits, n = pairs_of(s);
    const int parts = bits == 2 ? 4 : 2; /* of a byte */
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1)), ones = _mm256_set1_epi16(1);

    UNROLL
    for (int h = 0; h < m; h++)
        sum[h] = _mm256_setzero_si256();
    for (int i = 0; i < n; i++) {
        const __m256i a = _mm256_loadu_si256((const void *)(code + pair_at(s, i)));
        const int c = i * (32 / bits);
        __m256i x[4];
        UNROLL
        for (int k = 0; k < parts; k++)
            x[k] = _mm256_and_si256(_mm256_srli_epi16(a, bits * k), mask);
        UNROLL
        for (int h = 0; h < m; h++) {
            __m256i y = _mm256_maddubs_epi16(x[0], four(t->w[h] + c));
            UNROLL
            for (int k = 1; k < parts; k++)
                y = _mm256_add_epi16(y, _mm256_maddubs_epi16(x[k], four(t->w[h] + c + 4 * k)));
            sum[h] = _mm256_add_epi32(sum[h], _mm256_madd_epi16(y, ones));
        }
    }
}

/* The scores of a block's tokens for m query heads, 16 tokens at a time */
INLINE void scan_tile(const struct shape *s, const uint8_t *code, const struct tile *t,
                      int16_t *score, int stride)
{
    const int shift = cb_sketch_shift(s->bits);

    for (int g = 0; g < SKETCH_BLOCK; g += 16) {
        const uint8_t *from = code + (size_t)(g / 32) * group_bytes(s), *at = from + g % 32 * 2;
        __m256i a[TILE], b[TILE];
        ask_pairs(s, from, g / 16 % 2, 2);
        sum_eight(s, at, t, a);
        sum_eight(s, at + 64, t, b);
        UNROLL
        for (int h = 0; h < s->m; h++) {
            const __m256i y =
                _mm256_packs_epi32(_mm256_srai_epi32(a[h], shift), _mm256_srai_epi32(b[h], shift));
            const __m256i x = _mm256_mulhrs_epi16(y, _mm256_set1_epi16(t->mult[h]));
            _mm256_storeu_si256((void *)(score + h * stride + g),
                                _mm256_adds_epi16(x, _mm256_set1_epi16(t->base[h])));
        }
    }
}

/* Eight weights: the table by the lowest 5 bits, shifted down by the others */
INLINE __m256i weights(__m256i below, const int32_t *table)
{
    const __m256i i = _mm256_and_si256(below, _mm256_set1_epi32(31));
    return _mm256_srlv_epi32(_mm256_i32gather_epi32(table, i, 4), _mm256_srli_epi32(below, 5));
}

static uint32_t weigh(const int16_t *score, int n, int16_t *top)
{
    __m256i most = _mm256_set1_epi16(INT16_MIN), sum = _mm256_setzero_si256();
    int32_t table[32], lane[8];
    uint32_t all = 0;
    __m128i y;

    for (int i = 0; i < 32; i++)
        table[i] = cb_sketch_weight[i];
    for (int j = 0; j < n; j += 16)
        most = _mm256_max_epi16(_mm256_loadu_si256((const void *)(score + j)), most);
    y = _mm_max_epi16(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    y = _mm_xor_si128(y, _mm_set1_epi16(0x7fff)); /* the least unsigned is the largest signed */
    *top = (int16_t)(_mm_extract_epi16(_mm_minpos_epu16(y), 0) ^ 0x7fff);
    most = _mm256_set1_epi32(*top);
    for (int j = 0; j < n; j += 8) {
        const __m128i s = _mm_loadu_si128((const void *)(score + j));
        const __m256i below = _mm256_sub_epi32(most, _mm256_cvtepi16_epi32(s));
        sum = _mm256_add_epi32(sum, weights(below, table));
    }
    _mm256_storeu_si256((void *)lane, sum);
    for (int i = 0; i < 8; i++)
        all += (uint32_t)lane[i];
    return all;
}

static void rank(const int16_t *score, int stride, const int16_t *lse, int heads, int n,
                 uint16_t *out)
{
    const __m256i zero = _mm256_setzero_si256(), least = _mm256_set1_epi16(1 - SKETCH_BUCKETS);

    for (int j = 0; j < n; j += 16) {
        __m256i best = least;
        for (int h = 0; h < heads; h++) {
            const int16_t *x = score + (size_t)h * (size_t)stride + j;
            const __m256i s = _mm256_loadu_si256((const void *)x);
            best = _mm256_max_epi16(best, _mm256_subs_epi16(s, _mm256_set1_epi16(lse[h])));
        }
        best = _mm256_min_epi16(best, zero);
        _mm256_storeu_si256((void *)(out + j), _mm256_sub_epi16(zero, best));
    }
}

static void count(const uint16_t *x, int n, int most, uint32_t *out)
{
    const __m256i y = _mm256_set1_epi16((short)most);
    int j = 0;

    for (; j + 16 <= n; j += 16) {
        const __m256i r = _mm256_loadu_si256((const void *)(x + j));
        uint32_t in = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi16(y, r)); /* two bits each */
        for (; in; in &= in - 1, in &= in - 1)
            out[x[j + __builtin_ctz(in) / 2]]++;
    }
    cb_sketch_count(x + j, n - j, most, out);
}

/* Most vectors have nothing at or below the limit. Ranks are below 2^15: signed comparison does. */
static int pick(const uint16_t *x, int n, int limit, int *n_equal, int from, int32_t *idx)
{
    const __m256i y = _mm256_set1_epi16((short)(limit + 1));
    int out = 0, j = 0;

    for (; j + 16 <= n; j += 16) {
        const __m256i r = _mm256_loadu_si256((const void *)(x + j));
        if (_mm256_movemask_epi8(_mm256_cmpgt_epi16(y, r)))
            out += cb_sketch_pick(x + j, 16, limit, n_equal, from + j, idx + out);
    }
    return out + cb_sketch_pick(x + j, n - j, limit, n_equal, from + j, idx + out);
}

const struct kern_sketch cb_sketch_kern_avx2 = { scan, weigh, rank, count, pick };
