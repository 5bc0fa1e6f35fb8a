/* SPDX-License-Identifier: MIT */
/* attn_values_avx2.c - sums of values weighted by probabilities, as products of 16-bit integers:
 * two keys an instruction. A probability times its key's quantisation step is rounded to as many
 * bits as are sure to fit in 16 and to keep the sum in 32, as in attn_values_avx512.c. */
#include "attn_i16.h"
#include "cpu/vector/vec.h"

#define UNROLL _Pragma("GCC unroll 16")

VEC_INLINE __m256i load32(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* Largest code of a value */
static int top_of(enum kv_type t)
{
    return t == KV_Q8_0 ? 128 : 8192;
}

/* The factor that turns p times a key's scale into a code. p is at most 1 and the weights' sum. */
static float multiplier(float sum, float max_scale, int top)
{
    const float most = (float)(INT32_MAX / top - KEY_BLOCK); /* rounding adds less than 1 to each */
    const float fits = sum > 1.0f ? 32767.0f : 32767.0f / sum;

    return (fits < most / sum ? fits : most / sum) / max_scale;
}

static float max_of(const float *x, int n)
{
    vf max = v_set1(0.0f);

    for (int i = 0; i < n; i += VW)
        max = v_max(max, v_load_n(x + i, n - i));
    return v_hmax(max);
}

/* p[n] times the keys' scales as int16, up to a multiple of 16; returns the step */
static float quantize_p(const float *p, float sum, const float *scale, float max_scale, int n,
                        int top, int16_t *y)
{
    const float f = multiplier(sum, max_scale, top);

    if (!(sum > 0.0f && max_scale > 0.0f)) {
        memset(y, 0, KEY_BLOCK * sizeof *y);
        return sum; /* 0, or NaN */
    }
    for (int i = 0; i < n; i += 16) {
        __m256i x[2];
        UNROLL
        for (int k = 0; k < 2; k++)
            x[k] = _mm256_cvtps_epi32(
                v_mul(v_mul(v_load(p + i + VW * k), v_load(scale + i + VW * k)), v_set1(f)));
        _mm256_storeu_si256((void *)(y + i),
                            _mm256_permute4x64_epi64(_mm256_packs_epi32(x[0], x[1]), 0xd8));
    }
    return 1.0f / f;
}

/* o[m][hd_pad] of 16 dims = o * f + step * (p v). v: pairs of 32 dims, half of which are read.
 * ahead: as many codes to prefetch */
VEC_INLINE void pv_tile(int m, const int16_t *p, const int16_t *v, const int16_t *ahead, int n,
                        int hd_pad, float *o, const float *f, const float *step)
{
    __m256i acc[MR][2];

    UNROLL
    for (int r = 0; r < m; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    for (int j = 0; j < n; j += 2, v += 64, ahead += 64) {
        const __m256i x = load32(v), y = load32(v + 16);
        __builtin_prefetch(ahead, 0, 2);
        UNROLL
        for (int r = 0; r < m; r++)
            cb_i16_add(acc[r], x, y, p + r * KEY_BLOCK + j);
    }
    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int i = 0; i < 2; i++) {
        float *y = o + r * hd_pad + i * VW;
        const vf was = v_mul(v_load(y), v_set1(f[r]));
        v_store(y, v_fma(_mm256_cvtepi32_ps(acc[r][i]), v_set1(step[r]), was));
    }
}

#define PV(m) pv_tile(m <= MR ? m : 1, p, v, ahead, n, hd_pad, o, f, step)
static void pv_any(int m, const int16_t *p, const int16_t *v, const int16_t *ahead, int n,
                   int hd_pad, float *o, const float *f, const float *step)
{
    I16_HEIGHTS(m, PV);
}

/* Codes and scales of 32 dims each, and the distances to the next 32. */
struct codes {
    const int16_t *at, *ahead; /* ahead: what to prefetch */
    size_t apart;
    const float *scale;
    size_t scale_apart; /* 0: all dims have the same scales */
    int top;            /* the largest code */
};

/* Quantises each row's weights. A row that sees fewer than n entries gets codes that do not depend
 * on the entries past those. */
static void quantize_rows(const struct kern_soft *s, const float *scale, int n, int top, int16_t *p,
                          float *step)
{
    const float max = max_of(scale, n);

    for (int r = 0; r < s->rows; r++)
        step[r] =
            quantize_p(s->s + r * KEY_BLOCK, s->sum[r], scale,
                       s->seen[r] < n ? max_of(scale, s->seen[r]) : max, n, top, p + r * KEY_BLOCK);
}

static void sum_values(const struct kern_soft *s, struct codes v, int n, int hd, float *o)
{
    _Alignas(64) int16_t p[SUB_TILES * MR * KEY_BLOCK];
    float step[SUB_TILES * MR];

    for (int d = 0; d < hd; d += 32) {
        if (d == 0 || v.scale_apart)
            quantize_rows(s, v.scale, n, v.top, p, step);
        for (int c = 0; c < 32; c += 16)
            for (int r = 0; r < s->rows; r += s->mr)
                pv_any(s->rows - r < s->mr ? s->rows - r : s->mr, p + r * KEY_BLOCK, v.at + 2 * c,
                       (r ? v.at : v.ahead) + 2 * c, n, hd, o + r * hd + d + c, s->factor + r,
                       step + r);
        v.at += v.apart;
        v.ahead += v.apart;
        v.scale += v.scale_apart;
    }
}

void DOT_NAME(cb_pv_i16_)(const struct kern_soft *s, enum kv_type t, const void *vp, int n,
                          int hd_pad, float *o)
{
    const struct i16_values *y = vp;
    const struct codes v = { .at = y->code,
                             .ahead = y->code,
                             .apart = sizeof *y / sizeof *y->code,
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
                             .apart = 32 * KEY_BLOCK,
                             .scale = scale,
                             .top = top_of(KV_F16) };
    sum_values(s, v, KEY_BLOCK, hd, o);
}
