/* SPDX-License-Identifier: MIT */
/* attn_values_avx512.c - sums of values weighted by probabilities, as products of 16-bit integers:
 * two keys an instruction. A probability times its key's quantisation step is rounded to as many
 * bits as are sure to fit in 16 and to keep the sum in 32. */
#include <immintrin.h>
#include <stddef.h>
#include <string.h>

#include "attn_i16.h"
#include "cpu/vector/vec.h"

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

enum { ROWS = (SUB_TILES * MAX_TILE + 15) / 16 * 16 };

/* Largest code of a value */
static int top_of(enum kv_type t)
{
    return t == KV_Q8_0 ? 128 : 8192;
}

static float max_of(const float *x, int n)
{
    __m512 max = _mm512_setzero_ps();

    for (int i = 0; i < n; i += 16) {
        const __mmask16 in = (__mmask16)(n - i < 16 ? (1 << (n - i)) - 1 : 0xffff);
        max = _mm512_max_ps(max, _mm512_maskz_loadu_ps(in, x + i));
    }
    return _mm512_reduce_max_ps(max);
}

/* For 16 rows, f: the factor that turns a weight times its key's scale into a code; step: the value
 * of one step of the products. top: the largest scale that a row sees. A weight is at most 1 and at
 * most the weights' sum. A row that sees no weight above 0 gets f = 0 and step = its sum, 0 or
 * NaN. */
INLINE void multipliers(__m512 sum, __m512 top, int top_code, __m512 *f, __m512 *step)
{
    const __m512 one = _mm512_set1_ps(1.0f), zero = _mm512_setzero_ps();
    const float most =
        (float)(INT32_MAX / top_code - KEY_BLOCK); /* rounding adds less than 1 to each */
    const __mmask16 some =
        _mm512_cmp_ps_mask(sum, zero, _CMP_GT_OQ) & _mm512_cmp_ps_mask(top, zero, _CMP_GT_OQ);
    const __m512 fits = _mm512_div_ps(_mm512_set1_ps(32767.0f), _mm512_min_ps(one, sum));
    const __m512 held = _mm512_div_ps(_mm512_set1_ps(most), sum);

    *f = _mm512_maskz_div_ps(some, _mm512_min_ps(fits, held), top);
    *step = _mm512_mask_div_ps(sum, some, one, *f);
}

/* p[n] times the keys' scales and f as int16, up to a multiple of 32 */
INLINE void quantize_p(const float *p, float f, const float *scale, int n, int16_t *y)
{
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);

    if (f == 0.0f) {
        memset(y, 0, KEY_BLOCK * sizeof *y);
        return;
    }
    UNROLL
    for (int i = 0; i < KEY_BLOCK; i += 32) {
        __m512i x[2];
        if (i >= n)
            break;
        UNROLL
        for (int k = 0; k < 2; k++)
            x[k] = _mm512_cvtps_epi32(_mm512_mul_ps(
                _mm512_mul_ps(_mm512_loadu_ps(p + i + 16 * k), _mm512_loadu_ps(scale + i + 16 * k)),
                _mm512_set1_ps(f)));
        _mm512_storeu_si512(y + i, _mm512_permutexvar_epi64(order, _mm512_packs_epi32(x[0], x[1])));
    }
}

/* 16 pairs of codes of `wide` bytes -> 16-bit codes */
INLINE __m512i pairs(int wide, const char *v)
{
    return wide == 2 ? _mm512_loadu_si512(v)
                     : _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)v));
}

/* o[m][hd_pad] of 32 dims = o * f + step * (p v); ahead: as many codes to prefetch */
INLINE void pv_tile(int m, int wide, const int16_t *p, const char *v, const char *ahead, int n,
                    int hd_pad, float *o, const float *f, const float *step)
{
    __m512i acc[MAX_TILE][2];

    UNROLL
    for (int r = 0; r < m; r++)
        acc[r][0] = acc[r][1] = _mm512_setzero_si512();
    _Pragma("GCC unroll 1") /* or sums go through memory */
        for (int j = 0; j < n; j += 2, v += 64 * wide, ahead += 64 * wide)
    {
        const __m512i x = pairs(wide, v), y = pairs(wide, v + 32 * wide);
        __builtin_prefetch(ahead, 0, 2);
        if (wide == 2)
            __builtin_prefetch(ahead + 64, 0, 2);
        UNROLL
        for (int r = 0; r < m; r++) {
            int32_t both;
            memcpy(&both, p + r * KEY_BLOCK + j, sizeof both);
            const __m512i pair = _mm512_set1_epi32(both);
            cb_dot_i16(&acc[r][0], x, pair);
            cb_dot_i16(&acc[r][1], y, pair);
        }
    }
    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int i = 0; i < 2; i++) {
        float *y = o + r * hd_pad + i * 16;
        const __m512 was = _mm512_mul_ps(_mm512_loadu_ps(y), _mm512_set1_ps(f[r]));
        _mm512_storeu_ps(
            y, _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][i]), _mm512_set1_ps(step[r]), was));
    }
}

#define PV(m)  pv_tile(m, 2, p, v, ahead, n, hd_pad, o, f, step)
#define PV8(m) pv_tile(m, 1, p, v, ahead, n, hd_pad, o, f, step)
static void pv_any(int m, int wide, const int16_t *p, const char *v, const char *ahead, int n,
                   int hd_pad, float *o, const float *f, const float *step)
{
    if (wide == 2)
        I16_HEIGHTS(m, PV)
    else
        I16_HEIGHTS(m, PV8)
}

/* Codes of `wide` bytes and scales of 32 dims each, `apart` bytes from one to the next. */
struct codes {
    const char *at, *ahead; /* ahead: what to prefetch */
    size_t apart;
    int wide;
    const float *scale;
    size_t scale_apart; /* in numbers; 0: all dims have the same scales */
    int top;            /* the largest code */
};

/* Reads the scales stored after 8-bit codes and prefetches the next ones. */
static void read_scales(const struct codes *v, float *scale)
{
    const size_t at = offsetof(struct i8_values, scale);

    UNROLL
    for (int i = 0; i < KEY_BLOCK; i += 16)
        _mm512_storeu_ps(scale + i, cb_halves(v->at + at + 2 * i));
    for (int i = 0; i < 2 * KEY_BLOCK; i += 64)
        __builtin_prefetch(v->ahead + at + i, 0, 2);
}

/* Quantises each row's weights. A row that sees fewer than n entries gets codes that do not depend
 * on the entries past those. */
static void quantize_rows(const struct kern_soft *s, const float *scale, int n, int top_code,
                          int16_t *p, float *step)
{
    const float max = max_of(scale, n);
    float top[ROWS], f[ROWS];

    for (int r = 0; r < s->rows; r++)
        top[r] = s->seen[r] < n ? max_of(scale, s->seen[r]) : max;
    for (int r = 0; r < s->rows; r += 16) {
        const __mmask16 in = (__mmask16)(s->rows - r < 16 ? (1 << (s->rows - r)) - 1 : 0xffff);
        __m512 x, y;
        multipliers(_mm512_maskz_loadu_ps(in, s->sum + r), _mm512_maskz_loadu_ps(in, top + r),
                    top_code, &x, &y);
        _mm512_storeu_ps(f + r, x);
        _mm512_storeu_ps(step + r, y);
    }
    for (int r = 0; r < s->rows; r++)
        quantize_p(s->s + r * KEY_BLOCK, f[r], scale, n, p + r * KEY_BLOCK);
}

static void sum_values(const struct kern_soft *s, struct codes v, int n, int hd, float *o)
{
    _Alignas(64) int16_t p[SUB_TILES * MAX_TILE * KEY_BLOCK];
    float step[ROWS], scale[KEY_BLOCK];

    for (int d = 0; d < hd; d += 32) {
        if (v.wide == 1)
            read_scales(&v, scale);
        if (d == 0 || v.wide == 1 || v.scale_apart)
            quantize_rows(s, v.wide == 1 ? scale : v.scale, n, v.top, p, step);
        for (int r = 0; r < s->rows; r += s->mr)
            pv_any(s->rows - r < s->mr ? s->rows - r : s->mr, v.wide, p + r * KEY_BLOCK, v.at,
                   r ? v.at : v.ahead, n, hd, o + r * hd + d, s->factor + r, step + r);
        v.at += v.apart;
        v.ahead += v.apart;
        v.scale += v.scale_apart;
    }
}

void DOT_NAME(cb_pv_i16_)(const struct kern_soft *s, enum kv_type t, const void *vp, int n,
                          int hd_pad, float *o)
{
    const struct i16_values *y = vp;
    const struct codes v = { .at = vp,
                             .ahead = vp,
                             .apart = sizeof *y,
                             .wide = 2,
                             .scale = y->scale,
                             .scale_apart = t == KV_Q8_0 ? sizeof *y / sizeof *y->scale : 0,
                             .top = top_of(t) };
    sum_values(s, v, n, hd_pad, o);
}

void DOT_NAME(cb_pv_prepacked_half_)(const struct kern_soft *s, const void *codes,
                                     const float *scale, const void *ahead, int hd, float *o)
{
    const struct codes v = { .at = codes,
                             .ahead = ahead ? ahead : codes,
                             .apart = 32 * KEY_BLOCK * 2,
                             .wide = 2,
                             .scale = scale,
                             .top = top_of(KV_F16) };
    sum_values(s, v, KEY_BLOCK, hd, o);
}

/* The rows of this type hold their scales, so `step` is unused. */
void DOT_NAME(cb_pv_prepacked_q8_)(const struct kern_soft *s, const void *codes, const float *step,
                                   const void *ahead, int hd, float *o)
{
    const struct codes v = { .at = codes,
                             .ahead = ahead ? ahead : codes,
                             .apart = sizeof(struct i8_values),
                             .wide = 1,
                             .top = top_of(KV_Q8_0) };
    (void)step;
    sum_values(s, v, KEY_BLOCK, hd, o);
}
