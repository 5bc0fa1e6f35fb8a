/* SPDX-License-Identifier: MIT */
/* index_scan_avx512.c - scores of a trained selector's keys with AVX-512, without VNNI and with it:
 * two strips of 16 keys meet the eight heads of a tile, four numbers at a time. */
#include <immintrin.h>

#include "cpu/vector/dot_avx512.h"
#include "cpu/vector/kern_vec.h"
#include "cpu/vector/vec.h"
#include "device/index_strips.h"

#define UNROLL _Pragma("GCC unroll 8")
#define INLINE static inline __attribute__((always_inline))

enum { PAIR = 2 /* strips at once */ };

#ifdef __AVX512VNNI__
INLINE void add_quads(__m512i *acc, __m512i x, const int32_t *q)
{
    cb_dot_u8_i8(acc, x, q);
}
#else
/* Even and odd bytes as words, which differ in what fills the upper halves */
INLINE void add_quads(__m512i *acc, __m512i x, const int32_t *q)
{
    const __m512i y = _mm512_set1_epi32(*q), low = _mm512_set1_epi16(255);

    cb_dot_i16(acc, _mm512_and_si512(x, low), _mm512_srai_epi16(_mm512_slli_epi16(y, 8), 8));
    cb_dot_i16(acc, _mm512_srli_epi16(x, 8), _mm512_srai_epi16(y, 8));
}
#endif

/* A tile's heads, q[quads][STRIP_HEADS], add to the keys' sums. */
INLINE void add_tile(const int32_t *q, int quads, const int32_t *start, const float *weight,
                     const char *key, size_t line, size_t next, __m512 sum[PAIR])
{
    __m512i acc[STRIP_HEADS][PAIR];

    UNROLL
    for (int h = 0; h < STRIP_HEADS; h++)
        acc[h][0] = acc[h][1] = _mm512_set1_epi32(start[h]);
    for (int c = 0; c < quads; c++, q += STRIP_HEADS, key += line) {
        const __m512i x[PAIR] = { _mm512_loadu_si512(key), _mm512_loadu_si512(key + next) };
        UNROLL
        for (int h = 0; h < STRIP_HEADS; h++) {
            add_quads(&acc[h][0], x[0], q + h);
            add_quads(&acc[h][1], x[1], q + h);
        }
    }
    UNROLL
    for (int h = 0; h < STRIP_HEADS; h++)
        for (int i = 0; i < PAIR; i++) {
            const __m512i above = _mm512_max_epi32(acc[h][i], _mm512_setzero_si512());
            sum[i] = _mm512_fmadd_ps(_mm512_set1_ps(weight[h]), _mm512_cvtepi32_ps(above), sum[i]);
        }
}

/* n strips at once hide the latency of their sums. */
INLINE void line_strips(const struct strip_line *q, int quads, const char *key,
                        const struct strips *x, int n, const float *sum, float *y)
{
    __m512i acc[4];

    UNROLL
    for (int i = 0; i < n; i++)
        acc[i] = _mm512_set1_epi32(q->start);
    for (int c = 0; c < quads; c++, key += x->line)
        UNROLL
    for (int i = 0; i < n; i++) {
        const char *at = key + (size_t)i * x->next;
        _mm_prefetch(at + x->ahead, _MM_HINT_T0);
        add_quads(&acc[i], _mm512_loadu_si512(at), q->code + c);
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        const __m512 z = _mm512_fmadd_ps(_mm512_set1_ps(q->weight), _mm512_cvtepi32_ps(acc[i]),
                                         _mm512_set1_ps(q->bias));
        _mm512_storeu_ps(y + i * STRIP_KEYS,
                         _mm512_add_ps(_mm512_loadu_ps(sum + i * STRIP_KEYS), z));
    }
}

static void line(const struct strip_line *q, int quads, const struct strips *x, const float *sum,
                 float *y)
{
    int i = 0;

    for (; i + 4 <= x->n; i += 4)
        line_strips(q, quads, x->at + (size_t)i * x->next, x, 4, sum + i * STRIP_KEYS,
                    y + i * STRIP_KEYS);
    for (; i < x->n; i += PAIR)
        line_strips(q, quads, x->at + (size_t)i * x->next, x, PAIR, sum + i * STRIP_KEYS,
                    y + i * STRIP_KEYS);
}

static void add(const struct strip_query *q, int from, int to, const struct strips *x, float *sum)
{
    const char *key = x->at;

    for (int i = 0; i < x->n; i += PAIR, key += PAIR * x->next, sum += PAIR * STRIP_KEYS) {
        __m512 y[PAIR] = { _mm512_loadu_ps(sum), _mm512_loadu_ps(sum + STRIP_KEYS) };
        for (int t = from; t < to; t++)
            add_tile(q->code + t * q->quads * STRIP_HEADS, q->quads, q->start + t * STRIP_HEADS,
                     q->weight + t * STRIP_HEADS, key, x->line, x->next, y);
        _mm512_storeu_ps(sum, y[0]);
        _mm512_storeu_ps(sum + STRIP_KEYS, y[1]);
    }
}

static unsigned above(const float *sum, const float *step, float floor)
{
    const __m512 y = _mm512_mul_ps(_mm512_loadu_ps(sum), _mm512_loadu_ps(step));

    return _mm512_cmp_ps_mask(y, _mm512_set1_ps(floor), _CMP_GE_OQ);
}

static void pack(const struct strips *x, int quads, unsigned keys, char *to, size_t line)
{
    const char *key = x->at;

    for (int c = 0; c < quads; c++, key += x->line, to += line)
        _mm512_storeu_si512(to,
                            _mm512_maskz_compress_epi32((__mmask16)keys, _mm512_loadu_si512(key)));
}

const struct kern_index DOT_NAME(cb_index_kern_) = { line, add, above, pack };
