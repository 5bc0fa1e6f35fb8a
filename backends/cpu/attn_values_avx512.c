/* SPDX-License-Identifier: MIT */
/* attn_values_avx512.c - sums of values weighted by probabilities, as products of 16-bit integers: two
 * keys an instruction. Probabilities are rounded to 15 bits of the largest in a block, or as many as
 * keep the sum below 2^30. */
#include <immintrin.h>
#include <string.h>

#include "attn_i16.h"

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

/* Largest code of a value */
static int top_of(enum kv_type t)
{
    return t == KV_Q8_0 ? 128 : 8192;
}

void cb_pack_v_i16_avx512(const struct kern_rows *v, int hd, int at, void *vp)
{
    if (v->t == KV_Q8_0)
        cb_pack_v_q8_avx512(v, hd, at, vp);
    else
        cb_pack_v_half_avx512(v, hd, at, vp);
}

/* p[KEY_BLOCK] times the keys' scales as int16; what one step is worth */
static float quantize_p(const float *p, const float *scale, int n, int top, int16_t *y)
{
    const float most = (float)(1 << 30) / (float)top;
    __m512 x[KEY_BLOCK / 16], max = _mm512_setzero_ps(), sum = _mm512_setzero_ps();
    float m, s, inv;

    UNROLL
    for (int i = 0; i < KEY_BLOCK / 16; i++) {
        const __m512 u = i * 16 < n ? _mm512_loadu_ps(p + i * 16) : _mm512_setzero_ps();
        const __mmask16 seen = _mm512_cmp_ps_mask(u, _mm512_setzero_ps(), _CMP_NEQ_UQ);
        x[i] = _mm512_maskz_mul_ps(seen, u, _mm512_maskz_loadu_ps(seen, scale + i * 16));
        max = _mm512_max_ps(max, x[i]);
        sum = _mm512_add_ps(sum, x[i]);
    }
    m = _mm512_reduce_max_ps(max);
    s = _mm512_reduce_add_ps(sum);
    if (!(m > 0.0f)) {
        memset(y, 0, KEY_BLOCK * sizeof *y);
        return s; /* 0, or NaN */
    }
    inv = 32767.0f / m < most / s ? 32767.0f / m : most / s;
    UNROLL
    for (int i = 0; i < KEY_BLOCK / 16; i++) {
        const __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(x[i], _mm512_set1_ps(inv)));
        _mm256_storeu_si256((void *)(y + i * 16), _mm512_cvtepi32_epi16(v));
    }
    return 1.0f / inv;
}

/* o[m][hd_pad] of 32 dims = o * f + step * (p v); ahead: as many numbers, which are read next */
INLINE void pv_tile(int m, const int16_t *p, const int16_t *v, const int16_t *ahead, int n,
                    int hd_pad, float *o, const float *f, const float *step)
{
    __m512i acc[MAX_TILE][2];

    UNROLL
    for (int r = 0; r < m; r++)
        acc[r][0] = acc[r][1] = _mm512_setzero_si512();
    _Pragma("GCC unroll 4") for (int j = 0; j < n; j += 2, v += 64, ahead += 64)
    {
        const __m512i x = _mm512_loadu_si512(v), y = _mm512_loadu_si512(v + 32);
        __builtin_prefetch(ahead, 0, 2);
        __builtin_prefetch(ahead + 32, 0, 2);
        UNROLL
        for (int r = 0; r < m; r++) {
            int32_t pair;
            memcpy(&pair, p + r * KEY_BLOCK + j, sizeof pair);
            acc[r][0] = _mm512_dpwssd_epi32(acc[r][0], x, _mm512_set1_epi32(pair));
            acc[r][1] = _mm512_dpwssd_epi32(acc[r][1], y, _mm512_set1_epi32(pair));
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

#define PV(m) pv_tile(m, p, v, ahead, n, hd_pad, o, f, step)
static void pv_any(int m, const int16_t *p, const int16_t *v, const int16_t *ahead, int n,
                   int hd_pad, float *o, const float *f, const float *step)
{
    I16_HEIGHTS(m, PV);
}

/* Codes and scales of 32 dims each, so many numbers apart. scale_apart 0: all dims have the same scales. */
struct codes {
    const int16_t *at, *ahead; /* ahead: what is read next */
    size_t apart;
    const float *scale;
    size_t scale_apart;
    int top; /* the largest code */
};

static void sum_values(const float *s, int rows, int mr, struct codes v, int n, int hd, float *o,
                       const float *factor)
{
    _Alignas(64) int16_t p[SUB_TILES * MAX_TILE * KEY_BLOCK];
    float step[SUB_TILES * MAX_TILE];

    for (int d = 0; d < hd; d += 32) {
        for (int r = 0; r < rows && (d == 0 || v.scale_apart); r++)
            step[r] = quantize_p(s + r * KEY_BLOCK, v.scale, n, v.top, p + r * KEY_BLOCK);
        for (int r = 0; r < rows; r += mr)
            pv_any(rows - r < mr ? rows - r : mr, p + r * KEY_BLOCK, v.at, r ? v.at : v.ahead, n,
                   hd, o + r * hd + d, factor + r, step + r);
        v.at += v.apart;
        v.ahead += v.apart;
        v.scale += v.scale_apart;
    }
}

void cb_pv_i16_avx512(const float *s, int rows, int mr, enum kv_type t, const void *vp, int n,
                      int hd_pad, float *o, const float *factor)
{
    const struct i16_values *y = vp;
    const struct codes v = { .at = y->code,
                             .ahead = y->code,
                             .apart = sizeof *y / sizeof *y->code,
                             .scale = y->scale,
                             .scale_apart = t == KV_Q8_0 ? sizeof *y / sizeof *y->scale : 0,
                             .top = top_of(t) };
    sum_values(s, rows, mr, v, n, hd_pad, o, factor);
}

void cb_pv_sealed_avx512(const float *s, int rows, int mr, const void *codes, const float *scale,
                         const void *ahead, int hd, float *o, const float *factor)
{
    const struct codes v = { .at = codes,
                             .ahead = ahead ? ahead : codes,
                             .apart = 32 * KEY_BLOCK,
                             .scale = scale,
                             .top = top_of(KV_F16) };
    sum_values(s, rows, mr, v, KEY_BLOCK, hd, o, factor);
}
