/* SPDX-License-Identifier: MIT */
/* index_scan_avx2.c - scores of a trained selector's keys with AVX2, without VNNI and with it:
 * half a strip meets the eight heads of a tile, four numbers at a time. */
#include <immintrin.h>

#include "cpu/vector/dot_avx2.h"
#include "cpu/vector/kern_vec.h"
#include "cpu/vector/vec.h"
#include "device/index_strips.h"

#define UNROLL _Pragma("GCC unroll 8")
#define INLINE static inline __attribute__((always_inline))

enum { KEYS = 8 };

#ifdef DOT_AVX2_VNNI
INLINE __m256i add_quads(__m256i acc, __m256i x, int32_t q)
{
    return cb_dot_bytes(acc, x, _mm256_set1_epi32(q));
}
#else
/* Even and odd bytes as words, which differ in what fills the upper halves */
INLINE __m256i add_quads(__m256i acc, __m256i x, int32_t q)
{
    const __m256i y = _mm256_set1_epi32(q), low = _mm256_set1_epi16(255);

    acc =
        cb_dot_words(acc, _mm256_and_si256(x, low), _mm256_srai_epi16(_mm256_slli_epi16(y, 8), 8));
    return cb_dot_words(acc, _mm256_srli_epi16(x, 8), _mm256_srai_epi16(y, 8));
}
#endif

/* ---- keys as they are stored ---- */

/* The first n of eight quads */
INLINE __m256i quads_mask(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE __m256i load_quads(const void *p, __m256i in)
{
    return _mm256_maskload_epi32(p, in);
}

/* Sums of four products of the numbers of a part of a key's upper bits, in words: up to four of
 * 15 * 127 */
INLINE __m256i meet_upper(__m256i x, __m256i q, __m256i q_upper)
{
    const __m256i low = _mm256_set1_epi8(15);

    return _mm256_add_epi16(
        _mm256_maddubs_epi16(_mm256_and_si256(x, low), q),
        _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(x, 4), low), q_upper));
}

/* The sums of 8 vectors */
INLINE __m256i sums_of(const __m256i *x)
{
    const __m256i a =
        _mm256_hadd_epi32(_mm256_hadd_epi32(x[0], x[1]), _mm256_hadd_epi32(x[2], x[3]));
    const __m256i b =
        _mm256_hadd_epi32(_mm256_hadd_epi32(x[4], x[5]), _mm256_hadd_epi32(x[6], x[7]));

    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}

static void first(const struct strip_line *q, int quads, const uint8_t *upper, int n, float *y)
{
    const char *code = (const char *)q->code;
    const __m256i in[2] = { quads_mask(quads / 2), quads_mask(quads / 2 - 8) };
    const __m256 base = _mm256_set1_ps(cb_index_dot(q, 0));
    __m256i low[2], up[2], x[KEYS];

    for (int p = 0; p < 2; p++) {
        low[p] = load_quads(code + 32 * p, in[p]);
        up[p] = load_quads(code + 2 * quads + 32 * p, in[p]);
    }
    for (int j = 0; j < n; j += KEYS) {
        UNROLL
        for (int i = 0; i < KEYS; i++, upper += 2 * quads) {
            const __m256i a = meet_upper(load_quads(upper, in[0]), low[0], up[0]);
            const __m256i b = meet_upper(load_quads(upper + 32, in[1]), low[1], up[1]);
            x[i] = _mm256_madd_epi16(_mm256_add_epi16(a, b), _mm256_set1_epi16(1));
        }
        const __m256 dot = _mm256_cvtepi32_ps(_mm256_slli_epi32(sums_of(x), 4));
        _mm256_storeu_ps(y + j, _mm256_fmadd_ps(_mm256_set1_ps(q->weight), _mm256_add_ps(dot, base),
                                                _mm256_set1_ps(q->bias)));
    }
}

/* Vectors of 8 keys' quads become n lines of half a strip. */
INLINE void put_lines(vf *x, int n, char *to, size_t line)
{
    v_transpose(x);
    UNROLL
    for (int i = 0; i < KEYS; i++)
        if (i < n)
            v_store((float *)(void *)(to + (size_t)i * line), x[i]);
}

static void open(const uint8_t *const *key, size_t lower, int quads, char *to, size_t line)
{
    const __m256i low4 = _mm256_set1_epi8(15), high4 = _mm256_set1_epi8((char)0xf0);
    vf x[KEYS], y[KEYS];

    for (int h = 0; h < STRIP_KEYS / KEYS; h++, key += KEYS, to += KEYS * 4)
        for (int at = 0; at < quads / 2; at += 8) {
            const int n = at + 8 < quads / 2 ? 8 : quads / 2 - at;
            const __m256i in = quads_mask(n);
            UNROLL
            for (int i = 0; i < KEYS; i++) {
                const __m256i up = load_quads(key[i] + 4 * at, in);
                const __m256i low = load_quads(key[i] + lower + 4 * at, in);
                x[i] = _mm256_castsi256_ps(
                    _mm256_or_si256(_mm256_and_si256(_mm256_slli_epi16(up, 4), high4),
                                    _mm256_and_si256(low, low4)));
                y[i] = _mm256_castsi256_ps(
                    _mm256_or_si256(_mm256_and_si256(up, high4),
                                    _mm256_and_si256(_mm256_srli_epi16(low, 4), low4)));
            }
            put_lines(x, n, to + (size_t)at * line, line);
            put_lines(y, n, to + (size_t)(at + quads / 2) * line, line);
        }
}

/* ---- keys in strips ---- */

/* A tile's heads, q[quads][STRIP_HEADS], add to the keys' sums. */
INLINE __m256 add_tile(const int32_t *q, int quads, const int32_t *start, const float *weight,
                       const char *key, size_t line, __m256 sum)
{
    __m256i acc[STRIP_HEADS];

    UNROLL
    for (int h = 0; h < STRIP_HEADS; h++)
        acc[h] = _mm256_set1_epi32(start[h]);
    for (int c = 0; c < quads; c++, q += STRIP_HEADS, key += line) {
        const __m256i x = _mm256_loadu_si256((const void *)key);
        UNROLL
        for (int h = 0; h < STRIP_HEADS; h++)
            acc[h] = add_quads(acc[h], x, q[h]);
    }
    UNROLL
    for (int h = 0; h < STRIP_HEADS; h++) {
        const __m256i above = _mm256_max_epi32(acc[h], _mm256_setzero_si256());
        sum = _mm256_fmadd_ps(_mm256_set1_ps(weight[h]), _mm256_cvtepi32_ps(above), sum);
    }
    return sum;
}

/* Two strips at once hide the latency of their sums. */
static void line(const struct strip_line *q, int quads, const struct strips *x, const float *sum,
                 float *y)
{
    for (int i = 0; i < x->n; i += 2, sum += 2 * STRIP_KEYS, y += 2 * STRIP_KEYS) {
        const char *key = x->at + (size_t)i * x->next;
        __m256i acc[4];
        UNROLL
        for (int j = 0; j < 4; j++)
            acc[j] = _mm256_set1_epi32(q->start);
        for (int c = 0; c < quads; c++, key += x->line)
            UNROLL
        for (int j = 0; j < 4; j++) {
            const char *at = key + (size_t)(j / 2) * x->next + j % 2 * KEYS * 4;
            acc[j] = add_quads(acc[j], _mm256_loadu_si256((const void *)at), q->code[c]);
        }
        UNROLL
        for (int j = 0; j < 4; j++) {
            const __m256 z = _mm256_fmadd_ps(_mm256_set1_ps(q->weight), _mm256_cvtepi32_ps(acc[j]),
                                             _mm256_set1_ps(q->bias));
            _mm256_storeu_ps(y + j * KEYS, _mm256_add_ps(_mm256_loadu_ps(sum + j * KEYS), z));
        }
    }
}

static void add(const struct strip_query *q, int from, int to, const struct strips *x, float *sum)
{
    for (int i = 0; i < x->n * STRIP_KEYS; i += KEYS) {
        const char *key = x->at + (size_t)(i / STRIP_KEYS) * x->next + i % STRIP_KEYS * 4;
        __m256 y = _mm256_loadu_ps(sum + i);
        for (int t = from; t < to; t++)
            y = add_tile(q->code + t * q->quads * STRIP_HEADS, q->quads, q->start + t * STRIP_HEADS,
                         q->weight + t * STRIP_HEADS, key, x->line, y);
        _mm256_storeu_ps(sum + i, y);
    }
}

static int reach(const float *sum, const float *step, int n, float floor, int from, int32_t *at)
{
    int m = 0;

    for (int j = 0; j < n; j += KEYS) {
        const __m256 y = _mm256_mul_ps(_mm256_loadu_ps(sum + j), _mm256_loadu_ps(step + j));
        const __m256 in = _mm256_cmp_ps(y, _mm256_set1_ps(floor), _CMP_GE_OQ);
        unsigned keys =
            (unsigned)_mm256_movemask_ps(in) & (n - j < KEYS ? (1u << (n - j)) - 1 : 255);
        for (; keys; keys &= keys - 1)
            at[m++] = from + j + __builtin_ctz(keys);
    }
    return m;
}

const struct kern_index DOT_NAME(cb_index_kern_) = { first, open, line, add, reach };
