/* SPDX-License-Identifier: MIT */
/* index_scan_avx512.c - scores of a trained selector's keys with AVX-512, without VNNI and with it:
 * two strips of 16 keys meet the eight heads of a tile, four numbers at a time. */
#include <immintrin.h>

#include "base/ints.h"
#include "cpu/vector/dot_avx512.h"
#include "cpu/vector/kern_vec.h"
#include "cpu/vector/vec.h"
#include "device/index_strips.h"

#define UNROLL   _Pragma("GCC unroll 8")
#define UNROLL16 _Pragma("GCC unroll 16")
#define INLINE   static inline __attribute__((always_inline))

enum { PAIR = 2 /* strips at once */ };

/* The first n bytes */
INLINE __mmask64 half_mask(int n)
{
    return n < 64 ? ((__mmask64)1 << n) - 1 : ~(__mmask64)0;
}

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

/* ---- keys as they are stored ---- */

#ifdef __AVX512VNNI__
/* Sums of four products of the numbers of a key's upper bits */
INLINE __m512i meet_upper(__m512i x, __m512i q, __m512i q_upper)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i acc = _mm512_setzero_si512();

    cb_dot_bytes(&acc, _mm512_and_si512(x, low), q);
    cb_dot_bytes(&acc, _mm512_and_si512(_mm512_srli_epi16(x, 4), low), q_upper);
    return acc;
}
#else
/* Four products of up to 15 * 127 are a word. */
INLINE __m512i meet_upper(__m512i x, __m512i q, __m512i q_upper)
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i y = _mm512_maddubs_epi16(_mm512_and_si512(x, low), q);
    const __m512i z = _mm512_maddubs_epi16(_mm512_and_si512(_mm512_srli_epi16(x, 4), low), q_upper);

    return _mm512_madd_epi16(_mm512_add_epi16(y, z), _mm512_set1_epi16(1));
}
#endif

/* The sums of 16 vectors: pairs, quads, then 128-bit lanes twice */
INLINE __m512i sums_of(__m512i *x)
{
    UNROLL
    for (int i = 0; i < 16; i += 2)
        x[i / 2] = _mm512_add_epi32(_mm512_unpacklo_epi32(x[i], x[i + 1]),
                                    _mm512_unpackhi_epi32(x[i], x[i + 1]));
    UNROLL
    for (int i = 0; i < 8; i += 2)
        x[i / 2] = _mm512_add_epi32(_mm512_unpacklo_epi64(x[i], x[i + 1]),
                                    _mm512_unpackhi_epi64(x[i], x[i + 1]));
    UNROLL
    for (int n = 4; n > 1; n /= 2)
        for (int i = 0; i < n; i += 2)
            x[i / 2] = _mm512_add_epi32(_mm512_shuffle_i32x4(x[i], x[i + 1], 0x88),
                                        _mm512_shuffle_i32x4(x[i], x[i + 1], 0xdd));
    return x[0];
}

static void first(const struct strip_line *q, int quads, const uint8_t *upper, int n, float *y)
{
    const __mmask64 in = half_mask(2 * quads);
    const __m512i code = _mm512_maskz_loadu_epi8(in, q->code);
    const __m512i code_upper = _mm512_maskz_loadu_epi8(in, (const char *)q->code + 2 * quads);
    const __m512 base = _mm512_set1_ps(cb_index_dot(q, 0));
    __m512i x[16];

    for (int j = 0; j < n; j += 16) {
        UNROLL16
        for (int i = 0; i < 16; i++, upper += 2 * quads)
            x[i] = meet_upper(_mm512_maskz_loadu_epi8(in, upper), code, code_upper);
        const __m512 dot = _mm512_cvtepi32_ps(_mm512_slli_epi32(sums_of(x), 4));
        _mm512_storeu_ps(y + j, _mm512_fmadd_ps(_mm512_set1_ps(q->weight), _mm512_add_ps(dot, base),
                                                _mm512_set1_ps(q->bias)));
    }
}

/* Vectors of 16 keys' quads become n lines of a strip. */
INLINE void put_lines(vf *x, int n, char *to, size_t line)
{
    v_transpose(x);
    UNROLL16
    for (int i = 0; i < 16; i++)
        if (i < n)
            v_store((float *)(void *)(to + (size_t)i * line), x[i]);
}

static void open(const uint8_t *const *key, size_t lower, int quads, char *to, size_t line)
{
    const __m512i high = _mm512_set1_epi8((char)0xf0);
    vf x[16], y[16];

    for (int at = 0; at < 2 * quads; at += 64, to += 16 * line) {
        const __mmask64 in = half_mask(2 * quads - at);
        const int n = min_int(16, (2 * quads - at) / 4);
        UNROLL16
        for (int i = 0; i < 16; i++) {
            const __m512i up = _mm512_maskz_loadu_epi8(in, key[i] + at);
            const __m512i low = _mm512_maskz_loadu_epi8(in, key[i] + lower + at);
            /* 0xca: the bits of the second where the first has 1, else the third's */
            x[i] = _mm512_castsi512_ps(
                _mm512_ternarylogic_epi32(high, _mm512_slli_epi16(up, 4), low, 0xca));
            y[i] = _mm512_castsi512_ps(
                _mm512_ternarylogic_epi32(high, up, _mm512_srli_epi16(low, 4), 0xca));
        }
        put_lines(x, n, to, line);
        put_lines(y, n, to + (size_t)(quads / 2) * line, line);
    }
}

/* ---- keys in strips ---- */

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
        add_quads(&acc[i], _mm512_loadu_si512(key + (size_t)i * x->next), q->code + c);
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

static int reach(const float *sum, const float *step, int n, float floor, int from, int32_t *at)
{
    const __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int m = 0;

    for (int j = 0; j < n; j += 16) {
        const __mmask16 in = n - j < 16 ? (__mmask16)((1u << (n - j)) - 1) : 0xffff;
        const __m512 y = _mm512_mul_ps(_mm512_loadu_ps(sum + j), _mm512_loadu_ps(step + j));
        const __mmask16 keys = _mm512_mask_cmp_ps_mask(in, y, _mm512_set1_ps(floor), _CMP_GE_OQ);
        const __m512i here = _mm512_add_epi32(_mm512_set1_epi32(from + j), place);
        _mm512_storeu_si512(at + m, _mm512_maskz_compress_epi32(keys, here));
        m += __builtin_popcount(keys);
    }
    return m;
}

const struct kern_index DOT_NAME(cb_index_kern_) = { first, open, line, add, reach };
