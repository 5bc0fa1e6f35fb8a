/* SPDX-License-Identifier: MIT */
/* sketch_avx2.c - scores by sketched keys with AVX2: codes are multiplied in pairs of channels of
 * eight tokens at a time, for up to eight query heads that share the unpacked codes. */
#include <immintrin.h>

#include "cpu/vector/dot_avx2.h"
#include "cpu/vector/kern_vec.h"
#include "cpu/vector/vec.h"
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

INLINE __m256 join(int sum, __m256 a, __m256 b)
{
    return sum ? _mm256_add_ps(a, b) : _mm256_max_ps(a, b);
}

/* The sums or maxima of eight vectors -> eight lanes. The lanes of a vector are joined as a tree: i
 * with i + 4, + 2, + 1. */
INLINE __m256 tree(int sum, const __m256 *x)
{
    __m256 four[4], two[2];

    UNROLL
    for (int i = 0; i < 4; i++)
        four[i] = join(sum, _mm256_permute2f128_ps(x[i], x[i + 4], 0x20),
                       _mm256_permute2f128_ps(x[i], x[i + 4], 0x31));
    UNROLL
    for (int i = 0; i < 2; i++)
        two[i] = join(sum, _mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                      _mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));
    return join(sum, _mm256_shuffle_ps(two[0], two[1], 0x88),
                _mm256_shuffle_ps(two[0], two[1], 0xdd));
}

/* cb_sketch_whole(x, INT16_MAX) of eight lanes -> y[8] */
INLINE void wholes(__m256 x, int16_t *y)
{
    const __m256 least = _mm256_set1_ps(INT16_MIN), most = _mm256_set1_ps(INT16_MAX);
    const __m256i i = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(x, least), most));
    _mm_store_si128((void *)y,
                    _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1)));
}

/* A block's steps, and what is added to a score for each channel, in the order of the strips: the
 * minimum, or the middle of the channels that are left out */
INLINE void open_block(const struct shape *s, const uint8_t *block, float *step, float *low)
{
    const int n = cb_sketch_pad(s->hd), n_scored = s->n_strip * SKETCH_STRIP;
    const uint16_t *steps = (const uint16_t *)(const void *)block;
    const __m256 middle = _mm256_set1_ps(cb_sketch_middle(s->bits));

    for (int i = 0; i < n; i += 8) {
        const int c = channel_at(s, i);
        const __m256 x = half(steps + c), min = half(steps + n + c);
        _mm256_store_ps(step + i, x);
        _mm256_store_ps(low + i, i < n_scored ? min : _mm256_fmadd_ps(x, middle, min));
    }
}

/* 32 weights of channels, as integers */
INLINE void put_weights(const float *w, __m256 inv, int8_t *out)
{
    const __m256i order = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
    __m256i x[4];

    UNROLL
    for (int i = 0; i < 4; i++)
        x[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(w + 8 * i), inv));
    x[0] = _mm256_packs_epi16(_mm256_packs_epi32(x[0], x[1]), _mm256_packs_epi32(x[2], x[3]));
    _mm256_store_si256((void *)out, _mm256_permutevar8x32_epi32(x[0], order));
}

INLINE void open_tile(struct tile *t, const struct shape *s, const uint8_t *block, const float *q)
{
    const int n = cb_sketch_pad(s->hd), n_scored = s->n_strip * SKETCH_STRIP;
    _Alignas(32) float step[SKETCH_MAX_HD], low[SKETCH_MAX_HD], w[TILE][SKETCH_MAX_HD], inv[TILE];
    __m256 base[TILE], most[TILE], top;

    open_block(s, block, step, low);
    UNROLL
    for (int h = 0; h < TILE; h++)
        base[h] = most[h] = _mm256_setzero_ps();
    for (int h = 0; h < s->m; h++, q += n) {
        __m256 sum = base[h], odd = base[h], peak = base[h];
        for (int i = 0; i < n; i += 16) { /* a strip */
            const float *x = q + channel_at(s, i);
            const __m256 x0 = _mm256_loadu_ps(x), x1 = _mm256_loadu_ps(x + 8);
            sum = _mm256_fmadd_ps(x0, _mm256_load_ps(low + i), sum);
            odd = _mm256_fmadd_ps(x1, _mm256_load_ps(low + i + 8), odd);
            if (i < n_scored) {
                const __m256 y0 = _mm256_mul_ps(x0, _mm256_load_ps(step + i));
                const __m256 y1 = _mm256_mul_ps(x1, _mm256_load_ps(step + i + 8));
                peak = _mm256_max_ps(absolute(y1), _mm256_max_ps(absolute(y0), peak));
                _mm256_store_ps(w[h] + i, y0);
                _mm256_store_ps(w[h] + i + 8, y1);
            }
        }
        if (n_scored % 32) /* weights become bytes 32 at a time */
            memset(w[h] + n_scored, 0, 16 * sizeof(float));
        base[h] = _mm256_add_ps(sum, odd);
        most[h] = peak;
    }
    top = tree(0, most);
    wholes(tree(1, base), t->base);
    wholes(_mm256_mul_ps(top, _mm256_set1_ps(cb_sketch_mult_unit(s->bits))), t->mult);
    _mm256_store_ps(inv, _mm256_and_ps(_mm256_cmp_ps(top, _mm256_setzero_ps(), _CMP_GT_OQ),
                                       _mm256_div_ps(_mm256_set1_ps(127), top)));
    for (int h = 0; h < s->m; h++)
        for (int c = 0; c < n_scored; c += 32)
            put_weights(w[h] + c, _mm256_set1_ps(inv[h]), t->w[h] + c);
}

/* The tile's weights of four channels for every token of a vector: [channel / 4][m] */
INLINE void widen(const struct shape *s, const struct tile *t, __m256i *wide)
{
    for (int c = 0; c < s->n_strip * SKETCH_STRIP; c += 4) {
        UNROLL
        for (int h = 0; h < s->m; h++) {
            int32_t x;
            memcpy(&x, t->w[h] + c, sizeof x);
            *wide++ = _mm256_set1_epi32(x);
        }
    }
}

#ifdef DOT_AVX2_VNNI
/* sum += codes x of eight tokens times weights w; few: sums of 16 bits */
INLINE void add_codes(__m256i x, __m256i w, __m256i *few, __m256i *sum)
{
    (void)few;
    *sum = cb_dot_bytes(*sum, x, w);
    __asm__("" : "+x"(*sum)); /* products are added at once, not kept */
}

INLINE void add_few(__m256i few, __m256i *sum)
{
    (void)few, (void)sum;
}
#else
INLINE void add_codes(__m256i x, __m256i w, __m256i *few, __m256i *sum)
{
    (void)sum;
    *few = _mm256_add_epi16(*few, _mm256_maddubs_epi16(x, w));
    __asm__("" : "+x"(*few)); /* products are added at once, not kept */
}

INLINE void add_few(__m256i few, __m256i *sum)
{
    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(few, _mm256_set1_epi16(1)));
}
#endif

/* Sums of products of eight tokens, whose codes are in one half of a vector of each pair. Products
 * of two channels are up to 2 * 3 * 127 (4 bits: 2 * 15 * 127), so sums of those of a few pairs fit
 * into 16 bits. */
INLINE void sum_eight(const struct shape *s, const uint8_t *code, const __m256i *wide, __m256i *sum)
{
    const int m = s->m, bits = s->bits, n = pairs_of(s);
    const int parts = bits == 2 ? 4 : 2; /* of a byte */
    const int fit = bits == 2 ? 8 : 4;   /* pairs */
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));

    UNROLL
    for (int h = 0; h < m; h++)
        sum[h] = _mm256_setzero_si256();
    for (int from = 0; from < n; from += fit) {
        __m256i few[TILE];
        UNROLL
        for (int h = 0; h < m; h++)
            few[h] = _mm256_setzero_si256();
        for (int i = from; i < n && i < from + fit; i++) {
            const __m256i a = _mm256_loadu_si256((const void *)(code + pair_at(s, i)));
            UNROLL
            for (int k = 0; k < parts; k++, wide += m) {
                const __m256i x = _mm256_and_si256(_mm256_srli_epi16(a, bits * k), mask);
                UNROLL
                for (int h = 0; h < m; h++)
                    add_codes(x, wide[h], &few[h], &sum[h]);
            }
        }
        UNROLL
        for (int h = 0; h < m; h++)
            add_few(few[h], &sum[h]);
    }
}

/* The scores of a block's tokens for m query heads, 16 tokens at a time */
INLINE void scan_tile(const struct shape *s, const uint8_t *code, const struct tile *t,
                      int16_t *score, int stride)
{
    const int shift = cb_sketch_shift(s->bits);
    __m256i wide[TILE * SKETCH_MAX_HD / 4];

    widen(s, t, wide);
    for (int g = 0; g < SKETCH_BLOCK; g += 16) {
        const uint8_t *from = code + (size_t)(g / 32) * group_bytes(s), *at = from + g % 32 * 2;
        __m256i a[TILE], b[TILE];
        ask_pairs(s, from, g / 16 % 2, 2);
        sum_eight(s, at, wide, a);
        sum_eight(s, at + 64, wide, b);
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

/* Tables of 16-bit numbers, looked up byte by byte: of twice cb_sketch_weight[], and of powers of
 * two, which shift by multiplying */
struct weight_tables {
    __m256i low[2], high[2], pow_low, pow_high;
};

/* Eight of twice cb_sketch_weight[], from the i-th on, in each half */
INLINE __m256i eight_weights(int i)
{
    const __m128i x = _mm_loadu_si128((const void *)(cb_sketch_weight + i));
    return _mm256_slli_epi16(_mm256_broadcastsi128_si256(x), 1);
}

INLINE void weight_tables(struct weight_tables *t)
{
    const __m256i low = _mm256_set1_epi16(0xff);

    for (int i = 0; i < 2; i++) {
        const __m256i a = eight_weights(16 * i), b = eight_weights(16 * i + 8);
        t->low[i] = _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
        t->high[i] = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
    }
    t->pow_low = _mm256_broadcastsi128_si256(_mm_set_epi64x(0x0102040810204080, 0));
    t->pow_high = _mm256_broadcastsi128_si256(_mm_set_epi64x(0, 0x0102040810204080));
}

/* Sums of the weights of 32 scores that are a and b below the top, in four pairs a lane. Shifted by
 * 15 or more, a weight is 0. */
INLINE __m256i weights(const struct weight_tables *t, __m256i a, __m256i b)
{
    const __m256i mask = _mm256_set1_epi16(31), ones = _mm256_set1_epi16(1);
    const __m256i i = _mm256_packus_epi16(_mm256_and_si256(a, mask), _mm256_and_si256(b, mask));
    const __m256i down = _mm256_packus_epi16(_mm256_srli_epi16(a, 5), _mm256_srli_epi16(b, 5));
    const __m256i shift = _mm256_min_epu8(down, _mm256_set1_epi8(15));
    const __m256i second = _mm256_slli_epi16(i, 3); /* the top bit of a byte says so */
    const __m256i low = _mm256_blendv_epi8(_mm256_shuffle_epi8(t->low[0], i),
                                           _mm256_shuffle_epi8(t->low[1], i), second);
    const __m256i high = _mm256_blendv_epi8(_mm256_shuffle_epi8(t->high[0], i),
                                            _mm256_shuffle_epi8(t->high[1], i), second);
    const __m256i pow_low = _mm256_shuffle_epi8(t->pow_low, shift);
    const __m256i pow_high = _mm256_shuffle_epi8(t->pow_high, shift);
    const __m256i x = _mm256_mulhi_epu16(_mm256_unpacklo_epi8(low, high),
                                         _mm256_unpacklo_epi8(pow_low, pow_high));
    const __m256i y = _mm256_mulhi_epu16(_mm256_unpackhi_epi8(low, high),
                                         _mm256_unpackhi_epi8(pow_low, pow_high));

    return _mm256_add_epi32(_mm256_madd_epi16(x, ones), _mm256_madd_epi16(y, ones));
}

static uint32_t weigh(const int16_t *score, int n, int16_t *top)
{
    __m256i most = _mm256_set1_epi16(INT16_MIN), sum = _mm256_setzero_si256();
    struct weight_tables t;
    uint32_t lane[8], all = 0;
    __m128i y;

    for (int j = 0; j < n; j += 16)
        most = _mm256_max_epi16(_mm256_loadu_si256((const void *)(score + j)), most);
    y = _mm_max_epi16(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    y = _mm_xor_si128(y, _mm_set1_epi16(0x7fff)); /* the least unsigned is the largest signed */
    *top = (int16_t)(_mm_extract_epi16(_mm_minpos_epu16(y), 0) ^ 0x7fff);
    most = _mm256_set1_epi16(*top);
    weight_tables(&t);
    for (int j = 0; j < n; j += 32) { /* differences are unsigned */
        const __m256i a = _mm256_loadu_si256((const void *)(score + j));
        const __m256i b = _mm256_loadu_si256((const void *)(score + j + 16));
        sum = _mm256_add_epi32(sum,
                               weights(&t, _mm256_sub_epi16(most, a), _mm256_sub_epi16(most, b)));
    }
    _mm256_storeu_si256((void *)lane, sum);
    for (int i = 0; i < 8; i++)
        all += lane[i];
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

/* A bit for each lane of a, then of b, whose lanes are all ones or all zeros */
INLINE uint32_t bits_of(__m256i a, __m256i b)
{
    return (uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8));
}

/* Most vectors have nothing at or below the limit. Ranks are below 2^15: signed comparison does. */
static int pick(const uint16_t *x, int n, int limit, int *n_equal, int from, int32_t *idx)
{
    const __m256i y = _mm256_set1_epi16((short)limit);
    int out = 0, j = 0;

    for (; j + 32 <= n; j += 32) {
        const __m256i a = _mm256_loadu_si256((const void *)(x + j));
        const __m256i b = _mm256_loadu_si256((const void *)(x + j + 16));
        uint32_t below = bits_of(_mm256_cmpgt_epi16(y, a), _mm256_cmpgt_epi16(y, b));
        uint32_t equal = bits_of(_mm256_cmpeq_epi16(y, a), _mm256_cmpeq_epi16(y, b));
        for (; equal && *n_equal > 0; equal &= equal - 1, --*n_equal)
            below |= equal & -equal;
        for (; below; below &= below - 1)
            idx[out++] = from + j + __builtin_ctz(below);
    }
    return out + cb_sketch_pick(x + j, n - j, limit, n_equal, from + j, idx + out);
}

const struct kern_sketch DOT_NAME(cb_sketch_kern_) = { scan, weigh, rank, count, pick };
