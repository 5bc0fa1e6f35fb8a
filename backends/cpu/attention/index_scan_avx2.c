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
            _mm_prefetch(at + x->ahead, _MM_HINT_T0);
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

static unsigned above(const float *sum, const float *step, float floor)
{
    unsigned keys = 0;

    for (int i = 0; i < STRIP_KEYS; i += KEYS) {
        const __m256 y = _mm256_mul_ps(_mm256_loadu_ps(sum + i), _mm256_loadu_ps(step + i));
        keys |= (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(y, _mm256_set1_ps(floor), _CMP_GE_OQ))
                << i;
    }
    return keys;
}

const struct kern_index DOT_NAME(cb_index_kern_) = { line, add, above, cb_index_pack_plain };
