/* SPDX-License-Identifier: MIT */
/* mm_block_avx512.h - for mm_avx512.c and mm_amx.c alone: opens packed blocks of weights, unpacks
 * panels, and adds the scaled sums of a block. */
#ifndef MM_BLOCK_AVX512_H
#define MM_BLOCK_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "mm_dot_avx512.h"
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

INLINE void pairs(const uint8_t *q, __m512i w[8])
{
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++)
        w[g] = _mm512_and_si512(shift(load(q + 64 * (g / 4)), -2 * (g % 4)), _mm512_set1_epi8(3));
}

/* The code of weight 0 in an unpacked block */
INLINE int zero_of(enum dtype t)
{
    return mm_is_signed(mm_layout[t].panel) ? SIGNED_ZERO : mm_layout[t].zero;
}

/* zero, the code of weight 0, times the number at neg_sum */
INLINE __m512i start_sum(int zero, const uint8_t *neg_sum)
{
    if (!zero)
        return _mm512_setzero_si512();
    return _mm512_slli_epi32(bcast(neg_sum), (unsigned)__builtin_ctz((unsigned)zero));
}

/* The eight lines of a block as bytes; signed ones: + SIGNED_ZERO. */
INLINE void block_bytes(enum dtype t, const uint8_t *q, __m512i w[8])
{
    switch (mm_layout[t].lines) {
    case 2:
        pairs(q, w);
        break;
    case 3:
        pairs(q + 64, w);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            w[g] = and_or(shift(load(q), 2 - g), _mm512_set1_epi8(4), w[g]);
        break;
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
            w[g] = _mm512_xor_si512(load(q + 64 * g), _mm512_set1_epi8((char)SIGNED_ZERO));
    }
    if (mm_layout[t].book) {
        const __m128i book = _mm_loadu_si128((const __m128i *)mm_layout[t].book);
        const __m512i table =
            _mm512_broadcast_i32x4(_mm_add_epi8(book, _mm_set1_epi8((char)zero_of(t))));
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            w[g] = _mm512_shuffle_epi8(table, w[g]);
    }
}

/* Scale and minimum of block b of a chunk; [1]: of its second 16 columns. */
struct scales {
    __m512 d, dmin; /* of the chunk */
    __m512 s[2], m[2];
};

/* A chunk's f16 d or dmin */
INLINE __m512 load_step(enum dtype t, const uint8_t *p)
{
    return mm_layout[t].down ? _mm512_mul_ps(load_f16(p), _mm512_set1_ps(mm_unit(t))) : load_f16(p);
}

INLINE void chunk_scales(enum dtype t, const uint8_t *p, struct scales *s)
{
    if (!mm_layout[t].chunk_scale)
        return;
    s->d = load_step(t, p);
    if (mm_layout[t].scale == MM_BYTES || mm_layout[t].scale == MM_NIBBLES)
        s->dmin = load_step(t, p + 32);
}

/* Exponents -> 2^(e - 128); the second form is that of numbers below the normal ones */
INLINE __m512 load_exponents(const uint8_t *p)
{
    const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    const __m512i one = _mm512_set1_epi32(1);

    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_slli_epi32(_mm512_sub_epi32(e, one), 23),
                                                _mm512_slli_epi32(_mm512_add_epi32(e, one), 21)));
}

/* Low or high nibbles of 16 bytes */
INLINE __m512 load_nibbles(const uint8_t *p, int high)
{
    const __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));

    return _mm512_cvtepi32_ps(high ? _mm512_srli_epi32(v, 4)
                                   : _mm512_and_si512(v, _mm512_set1_epi32(15)));
}

INLINE void block_scales(enum dtype t, const uint8_t *p, int b, struct scales *s)
{
    p += mm_layout[t].chunk_scale + b * mm_layout[t].block_scale;
    switch (mm_layout[t].scale) {
    case MM_HALVES:
        s->s[0] = load_f16(p);
        if (mm_has_min(mm_layout[t].panel))
            s->m[0] = load_f16(p + 32);
        break;
    case MM_EXPONENT:
        s->s[0] = load_exponents(p);
        break;
    case MM_CHUNK_D:
        s->s[0] = s->d;
        break;
    case MM_ONE:
        s->s[0] = _mm512_mul_ps(s->d, load_i8(p));
        break;
    case MM_TWO:
        s->s[0] = _mm512_mul_ps(s->d, load_i8(p));
        s->s[1] = _mm512_mul_ps(s->d, load_i8(p + 16));
        break;
    case MM_BYTES:
        s->s[0] = _mm512_mul_ps(s->d, load_u8(p));
        s->m[0] = _mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(s->dmin, load_u8(p + 16)));
        break;
    case MM_NIBBLES:
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            s->s[h] = _mm512_mul_ps(s->d, load_nibbles(p + 16 * h, 0));
            s->m[h] = _mm512_mul_ps(s->dmin, load_nibbles(p + 16 * h, 1));
        }
    }
}

/* f32 += d * s * int */
INLINE __m512 add_block(__m512 acc, __m512i sum, __m512 s, __m512 d)
{
    return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), s), d, acc);
}

/* The same with a scale for each 16 columns. neg_sum: of those columns, n tokens apart; minima are
 * positive and count with it. */
INLINE __m512 add_block16(enum mm_panel kind, __m512 acc, __m512i sum0, __m512i sum1,
                          const struct scales *s, const uint8_t *neg_sum, int n, __m512 d)
{
    __m512 a = _mm512_mul_ps(_mm512_cvtepi32_ps(sum0), s->s[0]);

    a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum1), s->s[1], a);
    if (kind == MM_MIN16) {
        a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(bcast(neg_sum)), s->m[0], a);
        a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(bcast(neg_sum + 4 * n)), s->m[1], a);
    }
    return _mm512_fmadd_ps(a, d, acc);
}

/* One block of one group */
struct block {
    __m512i w[8];
    struct scales s;
};

INLINE void open_block(enum dtype t, const uint8_t *chunk, int b, const uint8_t *q,
                       struct block *out)
{
    block_scales(t, chunk, b, &out->s);
    block_bytes(t, q, out->w);
}

/* Prefetches the b-th block of the chunk at w, with its scales. With 8 lines a block the hardware
 * prefetcher of most processors does best by itself, once it has found the stream (all = 0). */
INLINE void prefetch_block(enum dtype t, int all, const uint8_t *w, int b)
{
    prefetch(w + (size_t)b * mm_block_bytes(t),
             mm_layout[t].lines == 8 && !all ? 1 : mm_layout[t].lines + 1);
}

/* A panel's block: 8 x [32 rows][4] bytes, then f32 scales and minima, each [32] or, with one for
 * each 16 columns, [2][32]. */
INLINE size_t panel_block(enum mm_panel p)
{
    return 1024 + (size_t)128 * (p == MM_MIN16 ? 4 : mm_has_min(p) || mm_has_two(p) ? 2 : 1);
}

INLINE void store_scales(enum mm_panel kind, const struct scales *s, uint8_t *p)
{
    _mm512_storeu_ps(p, s->s[0]);
    if (mm_has_min(kind))
        _mm512_storeu_ps(p + 128, s->m[0]);
    if (mm_has_two(kind))
        _mm512_storeu_ps(p + 128, s->s[1]);
    if (kind == MM_MIN16) {
        _mm512_storeu_ps(p + 256, s->m[0]);
        _mm512_storeu_ps(p + 384, s->m[1]);
    }
}

/* Two packed groups -> a panel; zero: the code that weight 0 has there */
INLINE void unpack_to(enum dtype t, int zero, const void *const *groups, int n_in, uint8_t *panel)
{
    const enum mm_panel kind = mm_layout[t].panel;
    const __m512i more = _mm512_set1_epi8((char)(zero - zero_of(t)));

    for (int half = 0; half < 2; half++) {
        const uint8_t *w = groups[half];
        uint8_t *p = panel + 64 * half;
        for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
            const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
            const uint8_t *q = w + mm_scale_bytes(t, nb);
            struct block v;

            chunk_scales(t, w, &v.s);
            for (int b = 0; b < nb; b++) {
                prefetch_block(t, 0, w, b);
                open_block(t, w, b, q, &v);
#pragma GCC unroll 8
                for (int g = 0; g < 8; g++)
                    _mm512_storeu_si512(p + 128 * g, _mm512_add_epi8(v.w[g], more));
                store_scales(kind, &v.s, p + 1024);
                q += 64 * mm_layout[t].lines;
                p += panel_block(kind);
            }
            w = q;
        }
    }
}

#endif
