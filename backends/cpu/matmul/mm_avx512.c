/* SPDX-License-Identifier: MIT */
/* mm_avx512.c - matrix products with VNNI: 16 rows x 4 columns a register. Few tokens multiply the
 * packed weights as they stream by; many multiply a panel of 32 rows x 6 tokens, where a broadcast
 * of four activations serves two registers of weights. */
#include <immintrin.h>
#include <string.h>

#include "kern_mm.h"

#define MM_TILE 6
#include "mm_table.h"

INLINE __m512i load(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

INLINE __m512 load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

INLINE __m512 load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

INLINE __m512 load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

INLINE __m512i bcast(const uint8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

INLINE __m512 bcast_f(const uint8_t *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_ps(v);
}

/* (a & mask) | b */
INLINE __m512i and_or(__m512i a, __m512i mask, __m512i b)
{
    return _mm512_ternarylogic_epi32(a, mask, b, 0xea);
}

/* Shifts 16-bit lanes left (n > 0) or right; the caller masks bits that cross bytes. */
INLINE __m512i shift(__m512i a, int n)
{
    return n >= 0 ? _mm512_slli_epi16(a, (unsigned)n) : _mm512_srli_epi16(a, (unsigned)-n);
}

INLINE void nibbles(const uint8_t *q, __m512i w[8])
{
    const __m512i m = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const __m512i v = load(q + 64 * j);
        w[j] = _mm512_and_si512(v, m);
        w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), m);
    }
}

/* The eight lines of a block as unsigned bytes; types of 8 bits: code + 128. */
INLINE void block_u8(enum dtype t, const uint8_t *q, __m512i w[8])
{
    switch (mm_layout[t].lines) {
    case 4:
        nibbles(q, w);
        break;
    case 5:
        nibbles(q + 64, w);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            w[g] = and_or(shift(load(q), 4 - g), _mm512_set1_epi8(16), w[g]);
        break;
    case 6:
        nibbles(q + 128, w);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            w[g] =
                and_or(shift(load(q + 64 * (g / 4)), 4 - 2 * (g % 4)), _mm512_set1_epi8(48), w[g]);
        break;
    default:
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            w[g] = _mm512_xor_si512(load(q + 64 * g), _mm512_set1_epi8(-128));
    }
}

INLINE int zero_shift(enum dtype t)
{
    return t == DT_Q4_0 ? 3 : t == DT_Q5_0 ? 4 : t == DT_Q6_K ? 5 : 7;
}

/* Scale (s[0], and s[1] of the second 16 columns) and minimum of block b of a chunk. */
struct scales {
    __m512 d, dmin; /* of the chunk */
    __m512 s[2], m;
};

INLINE void chunk_scales(enum dtype t, const uint8_t *p, struct scales *s)
{
    if (!mm_layout[t].chunk_scale)
        return;
    s->d = load_f16(p);
    if (t != DT_Q6_K)
        s->dmin = load_f16(p + 32);
}

INLINE void block_scales(enum dtype t, const uint8_t *p, int b, struct scales *s)
{
    p += mm_layout[t].chunk_scale + b * mm_layout[t].block_scale;
    if (t == DT_Q6_K) {
        s->s[0] = _mm512_mul_ps(s->d, load_i8(p));
        s->s[1] = _mm512_mul_ps(s->d, load_i8(p + 16));
    } else if (mm_layout[t].chunk_scale) {
        s->s[0] = _mm512_mul_ps(s->d, load_u8(p));
        s->m = _mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(s->dmin, load_u8(p + 16)));
    } else {
        s->s[0] = load_f16(p);
        if (mm_has_min(mm_layout[t].panel))
            s->m = load_f16(p + 32);
    }
}

/* f32 += d * s * int */
INLINE __m512 add_block(__m512 acc, __m512i sum, __m512 s, __m512 d)
{
    return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), s), d, acc);
}

INLINE __m512 add_block16(__m512 acc, __m512i sum0, __m512i sum1, const __m512 s[2], __m512 d)
{
    const __m512 a = _mm512_mul_ps(_mm512_cvtepi32_ps(sum0), s[0]);
    return _mm512_fmadd_ps(_mm512_fmadd_ps(_mm512_cvtepi32_ps(sum1), s[1], a), d, acc);
}

INLINE __m512i dot(__m512i acc, const __m512i *w, const uint8_t *x, int lines)
{
#pragma GCC unroll 8
    for (int g = 0; g < lines; g++)
        acc = _mm512_dpbusd_epi32(acc, w[g], bcast(x + 4 * g));
    return acc;
}

/* zero + w x; 16-bit: plus 256 times w times the high codes, which precede x */
INLINE __m512i products(int act16, __m512i zero, const __m512i *w, const uint8_t *x, int lines)
{
    const __m512i sum = dot(zero, w, x, lines);
    if (!act16)
        return sum;
    return _mm512_add_epi32(sum,
                            _mm512_slli_epi32(dot(_mm512_setzero_si512(), w, x - 32, lines), 8));
}

/* One block of token i; rec is the record of n tokens. */
INLINE __m512 block_token(enum dtype t, const __m512i w[8], const struct scales *s,
                          const uint8_t *rec, int i, int n, int act16, __m512 acc)
{
    const uint8_t *x = rec + 32 * i;
    const __m512 d = bcast_f(rec + 32 * n + 4 * i);
    __m512i sum = _mm512_setzero_si512();

    if (mm_layout[t].panel == MM_SYM16) {
        const __m512i z0 = _mm512_slli_epi32(bcast(rec + 44 * n + 4 * i), zero_shift(t));
        const __m512i z1 = _mm512_slli_epi32(bcast(rec + 48 * n + 4 * i), zero_shift(t));
        return add_block16(acc, products(act16, z0, w, x, 4), products(act16, z1, w + 4, x + 16, 4),
                           s->s, d);
    }
    if (!mm_has_min(mm_layout[t].panel))
        sum = _mm512_slli_epi32(bcast(rec + 40 * n + 4 * i), zero_shift(t));
    sum = products(act16, sum, w, x, 8);
    acc = add_block(acc, sum, s->s[0], d);
    if (mm_has_min(mm_layout[t].panel))
        acc = _mm512_fmadd_ps(s->m, bcast_f(rec + 36 * n + 4 * i), acc);
    return acc;
}

/* Prefetches the b-th block of the chunk at w, with its scales. With 8 lines a block the hardware
 * prefetcher does best by itself, once it has found the stream. */
INLINE void prefetch_block(enum dtype t, const uint8_t *w, int b)
{
    ask_ahead(w + (size_t)b * mm_block_bytes(t),
              mm_layout[t].lines == 8 ? 1 : mm_layout[t].lines + 1);
}

/* 16-bit: the record of two holds one token. */
INLINE void direct(enum dtype t, int n, int act16, const uint8_t *w, const uint8_t *x, int n_in,
                   float *out)
{
    __m512 acc[4] = { _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                      _mm512_setzero_ps() };

    for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
        const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
        const uint8_t *q = w + mm_scale_bytes(t, nb);
        struct scales s;

        chunk_scales(t, w, &s);
        for (int b = 0; b < nb; b++) {
            __m512i v[8];
            prefetch_block(t, w, b);
            block_scales(t, w, b, &s);
            block_u8(t, q, v);
#pragma GCC unroll 4
            for (int i = act16; i < n; i++)
                acc[i] = block_token(t, v, &s, x, i, n, act16, acc[i]);
            q += 64 * mm_layout[t].lines;
            x += mm_rec_bytes(n);
        }
        w = q;
    }
#pragma GCC unroll 4
    for (int i = act16; i < n; i++)
        _mm512_storeu_ps(out + 16 * (i - act16), acc[i]);
}

/* Unpacks each block once, into registers, and multiplies it with all tokens. */
INLINE void batch(enum dtype t, const uint8_t *w, const uint8_t *x, int n_in, int n_tok, float *out)
{
    for (int i = 0; i < n_tok; i++)
        _mm512_storeu_ps(out + 16 * i, _mm512_setzero_ps());
    for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
        const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
        const uint8_t *q = w + mm_scale_bytes(t, nb);
        struct scales s;

        chunk_scales(t, w, &s);
        for (int b = 0; b < nb; b++) {
            __m512i v[8];
            prefetch_block(t, w, b);
            block_scales(t, w, b, &s);
            block_u8(t, q, v);
            for (int i = 0; i < n_tok; i++, x += mm_rec_bytes(2))
                _mm512_storeu_ps(out + 16 * i,
                                 block_token(t, v, &s, x, 1, 2, 1, _mm512_loadu_ps(out + 16 * i)));
            q += 64 * mm_layout[t].lines;
        }
        w = q;
    }
}

/* A panel's block: 8 x [32 rows][4] bytes, then f32 scales [32] ([2][32] for MM_SYM16), minima
 * [32]. */
INLINE size_t panel_block(enum mm_panel p)
{
    return mm_has_min(p) || p == MM_SYM16 ? 1024 + 256 : 1024 + 128;
}

INLINE void unpack(enum dtype t, const void *const *groups, int n_in, uint8_t *panel)
{
    const enum mm_panel kind = mm_layout[t].panel;
    const __m512i to_128 = _mm512_set1_epi8(
        (char)(mm_has_min(kind) || mm_layout[t].lines == 8 ? 0 : 128 - mm_layout[t].zero));

    for (int half = 0; half < 2; half++) {
        const uint8_t *w = groups[half];
        uint8_t *p = panel + 64 * half;
        for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
            const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
            const uint8_t *q = w + mm_scale_bytes(t, nb);
            struct scales s;

            chunk_scales(t, w, &s);
            for (int b = 0; b < nb; b++) {
                __m512i v[8];
                prefetch_block(t, w, b);
                block_scales(t, w, b, &s);
                block_u8(t, q, v);
#pragma GCC unroll 8
                for (int g = 0; g < 8; g++)
                    _mm512_storeu_si512(p + 128 * g, _mm512_add_epi8(v[g], to_128));
                _mm512_storeu_ps((float *)(void *)(p + 1024), s.s[0]);
                if (mm_has_min(kind) || kind == MM_SYM16)
                    _mm512_storeu_ps((float *)(void *)(p + 1152), mm_has_min(kind) ? s.m : s.s[1]);
                q += 64 * mm_layout[t].lines;
                p += panel_block(kind);
            }
            w = q;
        }
    }
}

/* Four columns of 32 rows times n tokens. */
INLINE void panel_dot(const uint8_t *w, const uint8_t *x, int n, __m512i sum[2 * MM_TILE])
{
    const __m512i w0 = load(w), w1 = load(w + 64);
#pragma GCC unroll 6
    for (int i = 0; i < n; i++) {
        __m512i v = bcast(x + 32 * i);
        __asm__("" : "+v"(v)); /* one broadcast into a register, not two memory operands */
        sum[2 * i] = _mm512_dpbusd_epi32(sum[2 * i], w0, v);
        sum[2 * i + 1] = _mm512_dpbusd_epi32(sum[2 * i + 1], w1, v);
    }
}

INLINE void panel_zero(enum mm_panel kind, const uint8_t *neg_sum, int n, __m512i sum[2 * MM_TILE])
{
#pragma GCC unroll 6
    for (int i = 0; i < n; i++) {
        sum[2 * i] = mm_has_min(kind) ? _mm512_setzero_si512()
                                      : _mm512_slli_epi32(bcast(neg_sum + 4 * i), 7);
        sum[2 * i + 1] = sum[2 * i];
    }
}

INLINE void panel(enum mm_panel kind, int n, const uint8_t *w, const uint8_t *x, int n_in,
                  float *out)
{
    __m512 acc[2 * MM_TILE];
    __m512i sum[2 * MM_TILE];
    __m512 part[2 * MM_TILE];

#pragma GCC unroll 12
    for (int i = 0; i < 2 * n; i++)
        acc[i] = _mm512_setzero_ps();
    for (int b = 0; b < n_in / 32; b++, w += panel_block(kind), x += mm_rec_bytes(n)) {
        const __m512 s0 = _mm512_loadu_ps(w + 1024), s1 = _mm512_loadu_ps(w + 1088);

        panel_zero(kind, x + (kind == MM_SYM16 ? 44 : 40) * n, n, sum);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            panel_dot(w + 128 * g, x + 4 * g, n, sum);
        if (kind != MM_SYM16) {
#pragma GCC unroll 4
            for (int g = 4; g < 8; g++)
                panel_dot(w + 128 * g, x + 4 * g, n, sum);
        } else {
            const __m512 s2 = _mm512_loadu_ps(w + 1152), s3 = _mm512_loadu_ps(w + 1216);
#pragma GCC unroll 12
            for (int i = 0; i < 2 * n; i++)
                part[i] = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i]), i & 1 ? s1 : s0);
            panel_zero(kind, x + 48 * n, n, sum);
#pragma GCC unroll 4
            for (int g = 4; g < 8; g++)
                panel_dot(w + 128 * g, x + 4 * g, n, sum);
#pragma GCC unroll 12
            for (int i = 0; i < 2 * n; i++) {
                part[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i]), i & 1 ? s3 : s2, part[i]);
                acc[i] = _mm512_fmadd_ps(part[i], bcast_f(x + 32 * n + 4 * (i / 2)), acc[i]);
            }
            continue;
        }
#pragma GCC unroll 12
        for (int i = 0; i < 2 * n; i++)
            acc[i] = add_block(acc[i], sum[i], i & 1 ? s1 : s0, bcast_f(x + 32 * n + 4 * (i / 2)));
        if (mm_has_min(kind)) {
            const __m512 m0 = _mm512_loadu_ps(w + 1152), m1 = _mm512_loadu_ps(w + 1216);
#pragma GCC unroll 12
            for (int i = 0; i < 2 * n; i++)
                acc[i] =
                    _mm512_fmadd_ps(i & 1 ? m1 : m0, bcast_f(x + 36 * n + 4 * (i / 2)), acc[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < 2 * n; i++)
        _mm512_storeu_ps(out + 16 * i, acc[i]);
}

/* Float weights: two chains of additions (even and odd columns), joined at the end. */
INLINE __m512 load_row(enum dtype t, const uint8_t *w, int k)
{
    if (t == DT_F32)
        return _mm512_loadu_ps(w + 64 * (size_t)k);
    if (t == DT_F16)
        return load_f16(w + 32 * (size_t)k);
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(w + 32 * (size_t)k))), 16));
}

INLINE void direct_float(enum dtype t, int n, const uint8_t *w, const float *x, int n_in,
                         float *out)
{
    __m512 acc[2][MM_TILE];
    int k = 0;

#pragma GCC unroll 6
    for (int i = 0; i < n; i++)
        acc[0][i] = acc[1][i] = _mm512_setzero_ps();
    for (; k + 1 < n_in; k += 2) {
        const __m512 w0 = load_row(t, w, k), w1 = load_row(t, w, k + 1);
        if (n <= 2)
            ask_ahead(w + (t == DT_F32 ? 64 : 32) * (size_t)k, t == DT_F32 ? 2 : 1);
#pragma GCC unroll 6
        for (int i = 0; i < n; i++) {
            acc[0][i] = _mm512_fmadd_ps(w0, _mm512_set1_ps(x[(size_t)k * n + i]), acc[0][i]);
            acc[1][i] = _mm512_fmadd_ps(w1, _mm512_set1_ps(x[(size_t)(k + 1) * n + i]), acc[1][i]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < n; i++) {
        if (k < n_in)
            acc[0][i] =
                _mm512_fmadd_ps(load_row(t, w, k), _mm512_set1_ps(x[(size_t)k * n + i]), acc[0][i]);
        _mm512_storeu_ps(out + 16 * i, _mm512_add_ps(acc[0][i], acc[1][i]));
    }
}

/* One block: q = round(x * 127 / max|x|), d = max|x| / 127; all zero when that would overflow. */
static void quantize_block(const float *x, int i, int n, uint8_t *rec)
{
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const float amax = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    const int some = amax > 1e-30f;
    const __m512 inv = _mm512_set1_ps(some ? 127 / amax : 0);
    const __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, inv));
    const __m512i qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, inv));
    const int32_t sa = _mm512_reduce_add_epi32(qa), sb = _mm512_reduce_add_epi32(qb);
    const float d = some ? amax / 127 : 0;
    int32_t *neg = (int32_t *)(void *)(rec + 40 * n);
    float *f = (float *)(void *)(rec + 32 * n);

    _mm_storeu_si128((__m128i *)(rec + 32 * i), _mm512_cvtsepi32_epi8(qa));
    _mm_storeu_si128((__m128i *)(rec + 32 * i + 16), _mm512_cvtsepi32_epi8(qb));
    f[i] = d;
    f[n + i] = d * (float)(sa + sb);
    neg[i] = -(sa + sb);
    neg[n + i] = -sa;
    neg[2 * n + i] = -sb;
}

static void quantize(const float *x, int width, int n_in, void *rec)
{
    for (int b = 0; b < n_in / 32; b++)
        for (int i = 0; i < width; i++)
            quantize_block(x + (size_t)i * (size_t)n_in + 32 * b, i, width,
                           (uint8_t *)rec + (size_t)b * mm_rec_bytes(width));
}

/* 16 numbers as 8-bit codes and codes of their remainders -> both as one number. NaN becomes 0, so
 * that it cannot turn into a large code. */
INLINE __m512i act16_codes(__m512 x, __m512 inv, uint8_t *high, uint8_t *low)
{
    const __m512 product = _mm512_mul_ps(x, inv);
    const __m512 v = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(product, product, _CMP_ORD_Q), product);
    const __m512 h = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT);
    const __m512i most = _mm512_set1_epi32(127), h_code = _mm512_cvtps_epi32(h);
    __m512i l = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_sub_ps(v, h), _mm512_set1_ps(256)));

    l = _mm512_max_epi32(_mm512_min_epi32(l, most), _mm512_set1_epi32(-127));
    _mm_storeu_si128((__m128i *)high, _mm512_cvtepi32_epi8(h_code));
    _mm_storeu_si128((__m128i *)low, _mm512_cvtepi32_epi8(l));
    return _mm512_add_epi32(_mm512_slli_epi32(h_code, 8), l);
}

/* Quantises one block; all codes are 0 where 127 / top would overflow. */
INLINE void quantize_act16_block(const float *x, uint8_t *rec)
{
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    const __m512 inv = _mm512_set1_ps(top > 1e-30f ? 127 / top : 0);
    const float step = top > 1e-30f ? top / 127 / 256 : 0;
    const int32_t sa = _mm512_reduce_add_epi32(act16_codes(a, inv, rec, rec + 32));
    const int32_t sb = _mm512_reduce_add_epi32(act16_codes(b, inv, rec + 16, rec + 48));
    const float f[4] = { 0, step, 0, step * (float)(sa + sb) };
    const int32_t neg[6] = { 0, -(sa + sb), 0, -sa, 0, -sb };

    memcpy(rec + 64, f, sizeof f);
    memcpy(rec + 80, neg, sizeof neg);
}

static void quantize_act16(const float *x, int n_in, void *rec, size_t step)
{
    for (int b = 0; b < n_in / 32; b++)
        quantize_act16_block(x + 32 * b, (uint8_t *)rec + (size_t)b * step);
}

MM_DEFINE_DIRECT
MM_DEFINE_PANEL

const struct kern_mm cb_mm_avx512 = {
    .tile = MM_TILE,
    .direct_max = 4,
    .panel_rows = 32,
    .quantize = quantize,
    .quantize_batch = quantize_act16,
    MM_DIRECT_TABLE,
    MM_PANEL_TABLE,
};
