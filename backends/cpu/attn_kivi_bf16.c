/* SPDX-License-Identifier: MIT */
/* attn_kivi_bf16.c - a token's attention over blocks of 32 numbers on 2 or 4 bits. A number is
 * smallest + code * step: steps go into the queries or weights, which become bf16, the smallest ones are
 * summed on their own in f32, and codes are bf16 as they are. So a code costs one look-up, and no error
 * but that of the other factor: a 60th of what quantising has cost it. */
#include <immintrin.h>
#include <string.h>

#include "attn_i16.h"

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

/* Steps and smallest numbers of blocks, times a factor */
struct form {
    float step[CB_KIVI_MAX_HD], min[CB_KIVI_MAX_HD];
};

INLINE void open_blocks(const uint32_t *head, int n, float factor, struct form *f)
{
    const __m512 scale = _mm512_set1_ps(factor);

    for (int i = 0; i < n; i += 16) {
        __m512 step, min;
        cb_kivi_heads(head + i, &step, &min);
        _mm512_storeu_ps(f->step + i, _mm512_mul_ps(step, scale));
        _mm512_storeu_ps(f->min + i, _mm512_mul_ps(min, scale));
    }
}

/* What codes stand for: whatever is above a code's bits in the 5 of an index does not matter. */
INLINE __m512i table(int bits)
{
    static const uint16_t x[16] = {
        0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0,
        0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170
    };

    if (bits == 4)
        return _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)x));
    return _mm512_broadcastq_epi64(_mm_loadl_epi64((const void *)x));
}

/* The codes of two blocks beside each other, a pair a lane: 0..15 -> y[0], 16..31 -> y[1] */
INLINE void open_pair(int bits, const uint8_t *a, const uint8_t *b, __m512i bf16, __m512i *y)
{
    __m512i w;

    if (bits == 4) {
        const __m128i u = _mm_loadu_si128((const void *)a), v = _mm_loadu_si128((const void *)b);
        w = _mm512_cvtepu8_epi16(
            _mm256_set_m128i(_mm_unpackhi_epi8(u, v), _mm_unpacklo_epi8(u, v)));
        y[0] = _mm512_permutexvar_epi16(w, bf16);
    } else {
        const __m512i second = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1);
        const __m128i pairs =
            _mm_unpacklo_epi8(_mm_loadl_epi64((const void *)a), _mm_loadl_epi64((const void *)b));
        w = _mm512_srlv_epi16(_mm512_cvtepu8_epi16(_mm256_broadcastsi128_si256(pairs)), second);
        y[0] = _mm512_permutexvar_epi16(w, bf16);
    }
    y[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(w, 4), bf16);
}

/* 16 numbers and 16 others as pairs */
INLINE void store_pairs(__m512 x, __m512 y, uint32_t *out)
{
    const __m512i u = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x));
    const __m512i w = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(y));
    _mm512_storeu_si512(out, _mm512_or_si512(u, _mm512_slli_epi32(w, 16)));
}

/* acc[m][2] += the 32 numbers of a pair of blocks times q[m], `stride` apart */
INLINE void add_pair(int bits, int m, const uint8_t *a, const uint8_t *b, const uint32_t *q,
                     int stride, __m512i bf16, __m512 (*acc)[2])
{
    __m512i x[2];

    open_pair(bits, a, b, bf16, x);
    UNROLL
    for (int r = 0; r < m; r++) {
        const __m512bh y = (__m512bh)_mm512_set1_epi32((int)q[r * stride]);
        acc[r][0] = _mm512_dpbf16_ps(acc[r][0], (__m512bh)x[0], y);
        acc[r][1] = _mm512_dpbf16_ps(acc[r][1], (__m512bh)x[1], y);
    }
}

/* ---- logits ---- */

/* q times steps as pairs of channels c, c + 16; returns q times the smallest numbers */
static float pack_query(const float *q, const struct form *f, int hd, uint32_t *out)
{
    __m512 sum = _mm512_setzero_ps();

    for (int c = 0; c < hd; c += 32, out += 16) {
        const __m512 u = _mm512_loadu_ps(q + c), w = _mm512_loadu_ps(q + c + 16);
        store_pairs(_mm512_mul_ps(u, _mm512_loadu_ps(f->step + c)),
                    _mm512_mul_ps(w, _mm512_loadu_ps(f->step + c + 16)), out);
        sum = _mm512_fmadd_ps(u, _mm512_loadu_ps(f->min + c), sum);
        sum = _mm512_fmadd_ps(w, _mm512_loadu_ps(f->min + c + 16), sum);
    }
    return _mm512_reduce_add_ps(sum);
}

INLINE void logits_tile(int bits, int m, const uint8_t *group, const uint32_t *q, const float *base,
                        int hd, float *s)
{
    const size_t bytes = 4 + 4 * (size_t)bits;
    const __m512i bf16 = table(bits);
    __m512 acc[MAX_TILE][2];

    UNROLL
    for (int r = 0; r < m; r++)
        acc[r][0] = acc[r][1] = _mm512_set1_ps(base[r]);
    for (int c = 0; c < hd; c += 32, q += 16) {
        const uint8_t *at = group + (size_t)c * bytes + 4;
        UNROLL /* or the compiler copies every sum */
            for (int i = 0; i < 16; i++)
        {
            const uint8_t *a = at + (size_t)i * bytes, *b = a + 16 * bytes;
            add_pair(bits, m, a, b, q + i, CB_KIVI_MAX_HD / 2, bf16, acc);
            if (i % 3 == 0) { /* every line of the same group of the next block */
                __builtin_prefetch(a + KEY_BLOCK / 32 * (size_t)hd * bytes, 0, 2);
                __builtin_prefetch(b + KEY_BLOCK / 32 * (size_t)hd * bytes, 0, 2);
            }
        }
    }
    UNROLL
    for (int r = 0; r < m; r++) {
        _mm512_storeu_ps(s + r * KEY_BLOCK, acc[r][0]);
        _mm512_storeu_ps(s + r * KEY_BLOCK + 16, acc[r][1]);
    }
}

#define LOGITS_4(m) logits_tile(4, m, group, y, base, hd, s)
#define LOGITS_2(m) logits_tile(2, m, group, y, base, hd, s)
void cb_kivi_logits_bf16(int bits, const uint8_t *group, const float *const *q, float scale,
                         int rows, int hd, float *s)
{
    const size_t bytes = 4 + 4 * (size_t)bits;
    uint32_t head[CB_KIVI_MAX_HD], y[MAX_TILE * CB_KIVI_MAX_HD / 2];
    float base[MAX_TILE];
    struct form f;

    for (int c = 0; c < hd; c++)
        memcpy(head + c, group + (size_t)c * bytes, sizeof *head);
    open_blocks(head, hd, scale, &f);
    for (int m; rows > 0; rows -= m, q += m, s += m * KEY_BLOCK) {
        m = rows < MAX_TILE ? rows : MAX_TILE;
        for (int r = 0; r < m; r++)
            base[r] = pack_query(q[r], &f, hd, y + r * CB_KIVI_MAX_HD / 2);
        if (bits == 4)
            I16_HEIGHTS(m, LOGITS_4)
        else
            I16_HEIGHTS(m, LOGITS_2)
    }
}

/* ---- sums of values ---- */

/* Weights times steps as pairs of neighbours; returns weights times the smallest numbers */
static float pack_weights(const float *p, const struct form *f, uint32_t *out)
{
    __m512 sum = _mm512_setzero_ps();

    UNROLL
    for (int j = 0; j < KEY_BLOCK; j += 32, out += 16) {
        const __m512 u = _mm512_loadu_ps(p + j), w = _mm512_loadu_ps(p + j + 16);
        const __m512bh both =
            _mm512_cvtne2ps_pbh(_mm512_mul_ps(w, _mm512_loadu_ps(f->step + j + 16)),
                                _mm512_mul_ps(u, _mm512_loadu_ps(f->step + j)));
        _mm512_storeu_si512(out, (__m512i)both);
        sum = _mm512_fmadd_ps(u, _mm512_loadu_ps(f->min + j), sum);
        sum = _mm512_fmadd_ps(w, _mm512_loadu_ps(f->min + j + 16), sum);
    }
    return _mm512_reduce_add_ps(sum);
}

/* 32 dims of o[m][hd] = o * factor + base + the products. ahead: how far the next block's rows are */
INLINE void values_tile(int bits, int m, const uint8_t *const *row, size_t at, size_t ahead,
                        const uint32_t *p, const float *base, const float *factor, int hd, float *o)
{
    const __m512i bf16 = table(bits);
    __m512 acc[MAX_TILE][2];

    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int i = 0; i < 2; i++)
        acc[r][i] = _mm512_fmadd_ps(_mm512_loadu_ps(o + r * hd + i * 16), _mm512_set1_ps(factor[r]),
                                    _mm512_set1_ps(base[r]));
    UNROLL
    for (int j = 0; j < KEY_BLOCK / 2; j++) {
        const uint8_t *a = row[2 * j] + at, *b = row[2 * j + 1] + at;
        add_pair(bits, m, a, b, p + j, KEY_BLOCK / 2, bf16, acc);
        __builtin_prefetch(a + ahead, 0, 2);
        __builtin_prefetch(b + ahead, 0, 2);
    }
    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int i = 0; i < 2; i++)
        _mm512_storeu_ps(o + r * hd + i * 16, acc[r][i]);
}

#define VALUES_4(m)                                                                                \
    values_tile(4, m, row, at + 4, ahead, y, base, soft->factor + r0, hd, o + r0 * hd + d)
#define VALUES_2(m)                                                                                \
    values_tile(2, m, row, at + 4, ahead, y, base, soft->factor + r0, hd, o + r0 * hd + d)
void cb_kivi_values_bf16(int bits, const uint8_t *const *row, const struct kern_soft *soft, int hd,
                         float *o)
{
    uint32_t head[KEY_BLOCK], y[MAX_TILE * KEY_BLOCK / 2];
    float base[MAX_TILE];
    struct form f;
    size_t at = 0;

    for (int d = 0; d < hd; d += 32, at += 4 + 4 * (size_t)bits) {
        const size_t ahead = d ? 0 : KEY_BLOCK * (size_t)(hd / 32 * (4 + 4 * bits));
        for (int j = 0; j < KEY_BLOCK; j++)
            memcpy(head + j, row[j] + at, sizeof *head);
        open_blocks(head, KEY_BLOCK, 1.0f, &f);
        for (int r0 = 0, m; r0 < soft->rows; r0 += m) {
            m = soft->rows - r0 < MAX_TILE ? soft->rows - r0 : MAX_TILE;
            for (int r = 0; r < m; r++)
                base[r] = pack_weights(soft->s + (r0 + r) * KEY_BLOCK, &f, y + r * KEY_BLOCK / 2);
            if (bits == 4)
                I16_HEIGHTS(m, VALUES_4)
            else
                I16_HEIGHTS(m, VALUES_2)
        }
    }
}
