/* SPDX-License-Identifier: MIT */
/* sketch_avx512.c - scores by sketched keys with AVX-512, without VNNI and with it: codes are
 * multiplied four channels of 16 tokens at a time, for up to eight query heads that share the
 * unpacked codes. */
#include <immintrin.h>

#include "cpu/vector/dot_avx512.h"
#include "cpu/vector/kern_vec.h"
#include "cpu/vector/vec.h"
#include "sketch_tile.h"

#define UNROLL _Pragma("GCC unroll 16")

INLINE __m512 half(const uint16_t *x)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)x));
}

INLINE __m512 join(int sum, __m512 a, __m512 b)
{
    return sum ? _mm512_add_ps(a, b) : _mm512_max_ps(a, b);
}

/* The sums or maxima of eight vectors -> eight lanes, twice. The 16 lanes of a vector are joined as
 * a tree: i with i + 8, + 4, + 2, + 1. */
INLINE __m512 tree(int sum, const __m512 *x)
{
    const __m512i order = _mm512_set_epi32(14, 10, 6, 2, 12, 8, 4, 0, 14, 10, 6, 2, 12, 8, 4, 0);
    __m512 two[4], four[2], eight;

    UNROLL
    for (int i = 0; i < 4; i++)
        two[i] = join(sum, _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0x44),
                      _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0xee));
    UNROLL
    for (int i = 0; i < 2; i++)
        four[i] = join(sum, _mm512_shuffle_f32x4(two[2 * i], two[2 * i + 1], 0x88),
                       _mm512_shuffle_f32x4(two[2 * i], two[2 * i + 1], 0xdd));
    eight = join(sum, _mm512_shuffle_ps(four[0], four[1], 0x44),
                 _mm512_shuffle_ps(four[0], four[1], 0xee));
    eight = join(sum, eight, _mm512_permute_ps(eight, 0xb1));
    return _mm512_permutexvar_ps(order, eight);
}

/* cb_sketch_whole(x, INT16_MAX) of eight lanes -> y[8] */
INLINE void wholes(__m512 x, int16_t *y)
{
    const __m512 least = _mm512_set1_ps(INT16_MIN), most = _mm512_set1_ps(INT16_MAX);
    const __m512i i = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(x, least), most));
    _mm_store_si128((void *)y, _mm256_castsi256_si128(_mm512_cvtepi32_epi16(i)));
}

/* The heads go through the block's steps and minima together. */
INLINE void open_tile(struct tile *t, const struct shape *s, const uint8_t *block, const float *q)
{
    const int m = s->m, n = cb_sketch_pad(s->hd), n_scored = s->n_strip * SKETCH_STRIP;
    const uint16_t *step = (const uint16_t *)(const void *)block, *min = step + n;
    const __m512 unit = _mm512_set1_ps(cb_sketch_mult_unit(s->bits));
    const __m512 middle = _mm512_set1_ps(cb_sketch_middle(s->bits));
    __m512 base[TILE], most[TILE], top;
    float w[TILE][SKETCH_MAX_HD], inv[16];

    UNROLL
    for (int h = 0; h < TILE; h++)
        base[h] = most[h] = _mm512_setzero_ps();
    for (int i = 0; i < s->n_strip; i++) {
        const int c = channel_at(s, i * SKETCH_STRIP);
        const __m512 wide = half(step + c), least = half(min + c);
        UNROLL
        for (int h = 0; h < m; h++) {
            const __m512 x = _mm512_loadu_ps(q + h * n + c), y = _mm512_mul_ps(x, wide);
            base[h] = _mm512_fmadd_ps(x, least, base[h]);
            most[h] = _mm512_max_ps(_mm512_abs_ps(y), most[h]);
            _mm512_storeu_ps(w[h] + i * SKETCH_STRIP, y);
        }
    }
    for (int i = s->n_strip; i < n_strips(s); i++) {
        const int c = channel_at(s, i * SKETCH_STRIP);
        const __m512 x = _mm512_fmadd_ps(half(step + c), middle, half(min + c));
        UNROLL
        for (int h = 0; h < m; h++)
            base[h] = _mm512_fmadd_ps(_mm512_loadu_ps(q + h * n + c), x, base[h]);
    }
    top = tree(0, most);
    wholes(tree(1, base), t->base);
    wholes(_mm512_mul_ps(top, unit), t->mult);
    _mm512_storeu_ps(inv,
                     _mm512_maskz_div_ps(_mm512_cmp_ps_mask(top, _mm512_setzero_ps(), _CMP_GT_OQ),
                                         _mm512_set1_ps(127), top));
    for (int h = 0; h < m; h++)
        for (int c = 0; c < n_scored; c += 16) {
            const __m512 y = _mm512_mul_ps(_mm512_loadu_ps(w[h] + c), _mm512_set1_ps(inv[h]));
            _mm_store_si128((void *)(t->w[h] + c), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(y)));
        }
}

INLINE __m512i four(const int8_t *w)
{
    int32_t x;
    memcpy(&x, w, sizeof x);
    return _mm512_set1_epi32(x);
}

#ifdef __AVX512VNNI__
/* sum += codes x of 16 tokens times weights w; the codes are part k of n of their bytes. part: sums
 * of 16 bits */
INLINE void add_codes(int k, int n, __m512i x, __m512i w, __m512i *part, __m512i *sum)
{
    (void)k, (void)n, (void)part;
    *sum = _mm512_dpbusd_epi32(*sum, x, w);
}
#else
/* Products of two channels are up to 2 * 15 * 127, so those of all parts fit into 16 bits. */
INLINE void add_codes(int k, int n, __m512i x, __m512i w, __m512i *part, __m512i *sum)
{
    const __m512i p = _mm512_maddubs_epi16(x, w);

    *part = k ? _mm512_add_epi16(*part, p) : p;
    if (k == n - 1)
        *sum = _mm512_add_epi32(*sum, _mm512_madd_epi16(*part, _mm512_set1_epi16(1)));
}
#endif

/* The scores of a block's tokens for m query heads */
INLINE void scan_tile(const struct shape *s, const uint8_t *code, const struct tile *t,
                      int16_t *score, int stride)
{
    const int m = s->m, bits = s->bits, n = pairs_of(s);
    const int parts = bits == 2 ? 4 : 2; /* of a byte */
    const __m512i mask = _mm512_set1_epi8((char)((1 << bits) - 1));
    const int shift = cb_sketch_shift(bits);

    for (int g = 0; g < SKETCH_BLOCK; g += 32, code += group_bytes(s)) {
        __m512i sum[TILE][2];
        UNROLL
        for (int h = 0; h < m; h++)
            sum[h][0] = sum[h][1] = _mm512_setzero_si512();
        for (int i = 0; i < n; i++) {
            const uint8_t *pair = code + pair_at(s, i);
            const int c = i * (32 / bits);
            const __m512i a = _mm512_loadu_si512(pair), b = _mm512_loadu_si512(pair + 64);
            prefetch(s, pair, PAIR);
            __m512i part[TILE][2];
            UNROLL
            for (int k = 0; k < parts; k++) {
                const __m512i x =
                    _mm512_and_si512(_mm512_srli_epi16(a, (unsigned)(bits * k)), mask);
                const __m512i y =
                    _mm512_and_si512(_mm512_srli_epi16(b, (unsigned)(bits * k)), mask);
                UNROLL
                for (int h = 0; h < m; h++) {
                    const __m512i w = four(t->w[h] + c + 4 * k);
                    add_codes(k, parts, x, w, &part[h][0], &sum[h][0]);
                    add_codes(k, parts, y, w, &part[h][1], &sum[h][1]);
                }
            }
        }
        UNROLL
        for (int h = 0; h < m; h++) {
            const __m512i y = _mm512_packs_epi32(_mm512_srai_epi32(sum[h][0], (unsigned)shift),
                                                 _mm512_srai_epi32(sum[h][1], (unsigned)shift));
            const __m512i x = _mm512_mulhrs_epi16(y, _mm512_set1_epi16(t->mult[h]));
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
        cb_dot_i16(&sum, w, ones);
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

static void count(const uint16_t *x, int n, int most, uint32_t *out)
{
    const __m512i y = _mm512_set1_epi16((short)most);
    int j = 0;

    for (; j + 32 <= n; j += 32)
        for (uint32_t in = _mm512_cmplt_epu16_mask(_mm512_loadu_si512(x + j), y); in; in &= in - 1)
            out[x[j + __builtin_ctz(in)]]++;
    cb_sketch_count(x + j, n - j, most, out);
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

const struct kern_sketch DOT_NAME(cb_sketch_kern_) = { scan, weigh, rank, count, pick };
