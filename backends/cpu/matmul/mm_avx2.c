/* SPDX-License-Identifier: MIT */
/* mm_avx2.c - matrix products of 16 rows (two registers) x up to 4 tokens; built without VNNI and
 * with it. */
#include <immintrin.h>
#include <string.h>

#include "kern_mm.h"
#include "mm_dot_avx2.h"

#define MM_TILE   4
#define MM_GROUPS 1
#include "mm_table.h"

#include "mm_quantize_avx2.h"

INLINE __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m256 load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE __m256 load_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

INLINE __m256 load_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* Exponents -> 2^(e - 128); the second form is that of numbers below the normal ones */
INLINE __m256 load_exponents(const uint8_t *p)
{
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    const __m256i one = _mm256_set1_epi32(1);

    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_slli_epi32(_mm256_sub_epi32(e, one), 23),
                                                _mm256_slli_epi32(_mm256_add_epi32(e, one), 21)));
}

/* Low or high nibbles of 8 bytes */
INLINE __m256 load_nibbles(const uint8_t *p, int high)
{
    const __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));

    return _mm256_cvtepi32_ps(high ? _mm256_srli_epi32(v, 4)
                                   : _mm256_and_si256(v, _mm256_set1_epi32(15)));
}

INLINE __m256i bcast(const uint8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

INLINE __m256 bcast_f(const uint8_t *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_ps(v);
}

INLINE __m256i shift(__m256i a, int n)
{
    return n >= 0 ? _mm256_slli_epi16(a, n) : _mm256_srli_epi16(a, -n);
}

/* Bits of a that `mask` keeps after a shift */
INLINE __m256i bits(__m256i a, int n, char mask)
{
    return _mm256_and_si256(shift(a, n), _mm256_set1_epi8(mask));
}

#define UNPACKED DT_COUNT /* the type of a block of a panel */

/* The code of weight 0 in what codes() returns */
INLINE int zero_of(enum dtype t)
{
    return mm_is_signed(mm_layout[t].panel) ? SIGNED_ZERO : mm_layout[t].zero;
}

/* Columns 4g..4g+3 of rows 8 * half.. of a block: codes as bytes (8 bits: + SIGNED_ZERO), or their
 * numbers */
INLINE __m256i codes(enum dtype t, const uint8_t *q, int g, int half)
{
    const int lines = t == UNPACKED ? 8 : mm_layout[t].lines;
    __m256i v;

    q += 32 * half;
    if (lines == 8) {
        v = load(q + 64 * g);
        return t == UNPACKED ? v : _mm256_xor_si256(v, _mm256_set1_epi8((char)SIGNED_ZERO));
    }
    if (lines < 4) {
        v = bits(load(q + 64 * (lines - 2 + g / 4)), -2 * (g % 4), 3);
        if (lines == 3)
            v = _mm256_or_si256(v, bits(load(q), 2 - g, 4));
    } else {
        v = bits(load(q + 64 * (lines - 4 + g % 4)), g < 4 ? 0 : -4, 15);
    }
    if (lines == 5)
        v = _mm256_or_si256(v, bits(load(q), 4 - g, 16));
    if (lines == 6)
        v = _mm256_or_si256(v, bits(load(q + 64 * (g / 4)), 4 - 2 * (g % 4), 48));
    if (mm_layout[t].book) {
        const __m128i book = _mm_loadu_si128((const __m128i *)mm_layout[t].book);
        v = _mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(_mm_add_epi8(book, _mm_set1_epi8((char)zero_of(t)))), v);
    }
    return v;
}

/* sum[2 * token + half] += columns 4 * g0 .. 4 * g1 - 1 */
INLINE void add_columns(enum mm_panel kind, enum dtype t, int n, int g0, int g1, const uint8_t *q,
                        const uint8_t *x, __m256i sum[2 * MM_TILE])
{
    __m256i part[2 * MM_TILE];

#pragma GCC unroll 8
    for (int g = g0; g < g1; g++) {
        const __m256i w0 = codes(t, q, g, 0), w1 = codes(t, q, g, 1);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const __m256i v = bcast(x + 32 * i + 4 * g);
            add_four(kind, g, w0, v, &part[2 * i], &sum[2 * i]);
            add_four(kind, g, w1, v, &part[2 * i + 1], &sum[2 * i + 1]);
        }
    }
}

/* zero: the code of weight 0 */
INLINE void start_sums(int zero, const uint8_t *neg_sum, int n, __m256i sum[2 * MM_TILE])
{
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        sum[2 * i] = zero ? _mm256_slli_epi32(bcast(neg_sum + 4 * i), __builtin_ctz((unsigned)zero))
                          : _mm256_setzero_si256();
        sum[2 * i + 1] = sum[2 * i];
    }
}

/* Scales of a block, for 16 rows */
struct scales {
    __m256 d[2], dmin[2]; /* of the chunk */
    __m256 s[2], s2[2], m[2], m2[2];
};

/* 16-bit activations: sum[2 + h] += 256 * sum[h]. */
INLINE void join_act16(__m256i sum[2 * MM_TILE])
{
    for (int h = 0; h < 2; h++)
        sum[2 + h] = _mm256_add_epi32(sum[2 + h], _mm256_slli_epi32(sum[h], 8));
}

/* v + the minima of both halves of the columns; neg_sum: those columns', n tokens apart */
INLINE __m256 add_minima(const struct scales *s, const uint8_t *neg_sum, int n, int half, __m256 v)
{
    v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(bcast(neg_sum)), s->m[half], v);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(bcast(neg_sum + 4 * n)), s->m2[half], v);
}

/* acc[2 * token + half] += one block. 16-bit: the record of two holds one token; its result is the
 * second one. */
INLINE void add_block(enum mm_panel kind, enum dtype t, int zero, int n, int act16,
                      const uint8_t *q, const struct scales *s, const uint8_t *x,
                      __m256 acc[2 * MM_TILE])
{
    __m256i sum[2 * MM_TILE], sum2[2 * MM_TILE];

    if (mm_has_two(kind)) {
        start_sums(zero, x + 44 * n, n, sum);
        add_columns(kind, t, n, 0, 4, q, x, sum);
        start_sums(zero, x + 48 * n, n, sum2);
        add_columns(kind, t, n, 4, 8, q, x, sum2);
    } else {
        start_sums(zero, x + 40 * n, n, sum);
        add_columns(kind, t, n, 0, 8, q, x, sum);
    }
    if (act16)
        join_act16(sum);
    if (act16 && mm_has_two(kind))
        join_act16(sum2);
#pragma GCC unroll 8
    for (int i = 2 * act16; i < 2 * n; i++) {
        __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i]), s->s[i & 1]);
        if (mm_has_two(kind))
            v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum2[i]), s->s2[i & 1], v);
        if (kind == MM_MIN16)
            v = add_minima(s, x + 44 * n + 4 * (i / 2), n, i & 1, v);
        acc[i] = _mm256_fmadd_ps(v, bcast_f(x + 32 * n + 4 * (i / 2)), acc[i]);
        if (mm_has_min(kind))
            acc[i] = _mm256_fmadd_ps(s->m[i & 1], bcast_f(x + 36 * n + 4 * (i / 2)), acc[i]);
    }
}

/* A chunk's f16 d or dmin */
INLINE __m256 load_step(enum dtype t, const uint8_t *p)
{
    return mm_layout[t].down ? _mm256_mul_ps(load_f16(p), _mm256_set1_ps(mm_unit(t))) : load_f16(p);
}

INLINE void chunk_scales(enum dtype t, const uint8_t *p, struct scales *s)
{
    if (!mm_layout[t].chunk_scale)
        return;
    for (int h = 0; h < 2; h++) {
        s->d[h] = load_step(t, p + 16 * h);
        if (mm_layout[t].scale == MM_BYTES || mm_layout[t].scale == MM_NIBBLES)
            s->dmin[h] = load_step(t, p + 32 + 16 * h);
    }
}

INLINE void block_scales(enum dtype t, const uint8_t *p, int b, struct scales *s)
{
    p += mm_layout[t].chunk_scale + b * mm_layout[t].block_scale;
    for (int h = 0; h < 2; h++) {
        switch (mm_layout[t].scale) {
        case MM_HALVES:
            s->s[h] = load_f16(p + 16 * h);
            if (mm_has_min(mm_layout[t].panel))
                s->m[h] = load_f16(p + 32 + 16 * h);
            break;
        case MM_EXPONENT:
            s->s[h] = load_exponents(p + 8 * h);
            break;
        case MM_CHUNK_D:
            s->s[h] = s->d[h];
            break;
        case MM_ONE:
            s->s[h] = _mm256_mul_ps(s->d[h], load_i8(p + 8 * h));
            break;
        case MM_TWO:
            s->s[h] = _mm256_mul_ps(s->d[h], load_i8(p + 8 * h));
            s->s2[h] = _mm256_mul_ps(s->d[h], load_i8(p + 16 + 8 * h));
            break;
        case MM_BYTES:
            s->s[h] = _mm256_mul_ps(s->d[h], load_u8(p + 8 * h));
            s->m[h] = _mm256_sub_ps(_mm256_setzero_ps(),
                                    _mm256_mul_ps(s->dmin[h], load_u8(p + 16 + 8 * h)));
            break;
        case MM_NIBBLES:
            s->s[h] = _mm256_mul_ps(s->d[h], load_nibbles(p + 8 * h, 0));
            s->s2[h] = _mm256_mul_ps(s->d[h], load_nibbles(p + 16 + 8 * h, 0));
            s->m[h] = _mm256_mul_ps(s->dmin[h], load_nibbles(p + 8 * h, 1));
            s->m2[h] = _mm256_mul_ps(s->dmin[h], load_nibbles(p + 16 + 8 * h, 1));
        }
    }
}

INLINE void store_acc(const __m256 *acc, int n, float *out)
{
#pragma GCC unroll 8
    for (int i = 0; i < 2 * n; i++)
        _mm256_storeu_ps(out + 8 * i, acc[i]);
}

/* Prefetches the b-th block of the chunk at w, with its scales */
INLINE void prefetch_block(enum dtype t, const uint8_t *w, int b)
{
    prefetch(w + (size_t)b * mm_block_bytes(t), mm_layout[t].lines + 1);
}

INLINE void direct(enum dtype t, int n, int act16, const uint8_t *w, const uint8_t *x, int n_in,
                   float *out)
{
    __m256 acc[2 * MM_TILE];

#pragma GCC unroll 8
    for (int i = 0; i < 2 * n; i++)
        acc[i] = _mm256_setzero_ps();
    for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
        const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
        const uint8_t *q = w + mm_scale_bytes(t, nb);
        struct scales s;

        chunk_scales(t, w, &s);
        for (int b = 0; b < nb; b++) {
            prefetch_block(t, w, b);
            block_scales(t, w, b, &s);
            add_block(mm_layout[t].panel, t, zero_of(t), n, act16, q, &s, x, acc);
            q += 64 * mm_layout[t].lines;
            x += mm_rec_bytes(n);
        }
        w = q;
    }
    store_acc(acc + 2 * act16, n - act16, out);
}

/* A block as 16-bit words around zero, for a batch: [g][0] holds columns 4g and 4g + 2 of the first
 * 8 rows and of the other 8, [g][1] columns 4g + 1 and 4g + 3. A multiplication of words costs as
 * much as two of bytes, but its sums do not overflow. */
struct words {
    __m256i w[8][2][2];
    struct scales s;
};

INLINE void block_words(enum dtype t, const uint8_t *q, struct words *b)
{
    const __m256i zero = _mm256_set1_epi16((short)zero_of(t));

#pragma GCC unroll 8
    for (int g = 0; g < 8; g++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m256i v = codes(t, q, g, h);
            if (mm_is_signed(mm_layout[t].panel) && !SIGNED_ZERO) {
                b->w[g][0][h] = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
                b->w[g][1][h] = _mm256_srai_epi16(v, 8);
            } else {
                b->w[g][0][h] = _mm256_sub_epi16(_mm256_and_si256(v, _mm256_set1_epi16(255)), zero);
                b->w[g][1][h] = _mm256_sub_epi16(_mm256_srli_epi16(v, 8), zero);
            }
        }
}

/* sum[2 * token + half] = columns 4 * g0 .. 4 * g0 + 4 * n_g - 1 of n tokens */
INLINE void word_sums(const struct words *b, int n, int g0, int n_g, const uint8_t *x,
                      __m256i sum[2 * MM_TILE])
{
#pragma GCC unroll 8
    for (int i = 0; i < 2 * n; i++)
        sum[i] = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int g = g0; g < g0 + n_g; g++)
#pragma GCC unroll 2
        for (int e = 0; e < 2; e++) {
            const __m256i w0 = b->w[g][e][0], w1 = b->w[g][e][1];
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) {
                const __m256i v = bcast(x + mm_rec_bytes(2) * (size_t)i + 8 * g + 4 * e);
                sum[2 * i] = cb_dot_words(sum[2 * i], w0, v);
                sum[2 * i + 1] = cb_dot_words(sum[2 * i + 1], w1, v);
                /* stops the compiler from keeping all products alive */
                __asm__("" : "+x"(sum[2 * i]), "+x"(sum[2 * i + 1]));
            }
        }
}

/* out[n][16] += a block times n tokens: add_block with other integer sums */
INLINE void add_words(enum mm_panel kind, int n, const struct words *b, const uint8_t *x,
                      float *out)
{
    __m256i sum[2 * MM_TILE];
    __m256 v[2 * MM_TILE];

    word_sums(b, n, 0, mm_has_two(kind) ? 4 : 8, x, sum);
#pragma GCC unroll 8
    for (int i = 0; i < 2 * n; i++)
        v[i] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i]), b->s.s[i & 1]);
    if (mm_has_two(kind)) {
        word_sums(b, n, 4, 4, x, sum);
#pragma GCC unroll 8
        for (int i = 0; i < 2 * n; i++)
            v[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[i]), b->s.s2[i & 1], v[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 2 * n; i++) {
        const uint8_t *f = x + mm_rec_bytes(2) * (size_t)(i / 2) + 64;
        __m256 acc;
        if (kind == MM_MIN16)
            v[i] = add_minima(&b->s, f + 28, 2, i & 1, v[i]);
        acc = _mm256_fmadd_ps(v[i], bcast_f(f + 4), _mm256_loadu_ps(out + 8 * i));
        if (mm_has_min(kind))
            acc = _mm256_fmadd_ps(b->s.m[i & 1], bcast_f(f + 12), acc);
        _mm256_storeu_ps(out + 8 * i, acc);
    }
}

INLINE void add_words_all(enum mm_panel kind, int n_tok, const struct words *b, const uint8_t *x,
                          float *out)
{
    const size_t rec = mm_rec_bytes(2);

    for (; n_tok >= MM_TILE; n_tok -= MM_TILE, x += MM_TILE * rec, out += MM_TILE * MM_ROWS)
        add_words(kind, MM_TILE, b, x, out);
    if (n_tok == 3)
        add_words(kind, 3, b, x, out);
    else if (n_tok == 2)
        add_words(kind, 2, b, x, out);
    else if (n_tok)
        add_words(kind, 1, b, x, out);
}

/* Not inlined: types share them */
static void add_words_sym(int n_tok, const struct words *b, const uint8_t *x, float *out)
{
    add_words_all(MM_SYM8, n_tok, b, x, out);
}

static void add_words_min(int n_tok, const struct words *b, const uint8_t *x, float *out)
{
    add_words_all(MM_MIN4, n_tok, b, x, out);
}

static void add_words_sym16(int n_tok, const struct words *b, const uint8_t *x, float *out)
{
    add_words_all(MM_SYM16, n_tok, b, x, out);
}

static void add_words_min16(int n_tok, const struct words *b, const uint8_t *x, float *out)
{
    add_words_all(MM_MIN16, n_tok, b, x, out);
}

INLINE void batch(enum dtype t, const uint8_t *w, const uint8_t *x, int n_in, int n_tok, float *out)
{
    const enum mm_panel kind = mm_layout[t].panel;
    struct words block;

    memset(out, 0, (size_t)n_tok * MM_ROWS * sizeof *out);
    for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
        const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
        const uint8_t *q = w + mm_scale_bytes(t, nb);

        chunk_scales(t, w, &block.s);
        for (int b = 0; b < nb; b++) {
            prefetch_block(t, w, b);
            block_scales(t, w, b, &block.s);
            block_words(t, q, &block);
            if (kind == MM_MIN16)
                add_words_min16(n_tok, &block, x, out);
            else if (mm_has_two(kind))
                add_words_sym16(n_tok, &block, x, out);
            else if (mm_has_min(kind))
                add_words_min(n_tok, &block, x, out);
            else
                add_words_sym(n_tok, &block, x, out);
            q += 64 * mm_layout[t].lines;
            x += mm_rec_bytes(2) * (size_t)n_tok;
        }
        w = q;
    }
}

/* A panel's block: 8 lines, then f32 scales [16], second scales [16], minima [16], second minima.
 */
INLINE size_t panel_block(enum mm_panel kind)
{
    return 512 + (kind == MM_MIN16 ? 256 : mm_has_min(kind) || mm_has_two(kind) ? 128 : 64);
}

INLINE void unpack(enum dtype t, const void *const *groups, int n_in, uint8_t *p)
{
    const enum mm_panel kind = mm_layout[t].panel;
    const __m256i more = _mm256_set1_epi8((char)(panel_zero(kind) - zero_of(t)));
    const uint8_t *w = groups[0];

    for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
        const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;
        const uint8_t *q = w + mm_scale_bytes(t, nb);
        struct scales s;

        chunk_scales(t, w, &s);
        for (int b = 0; b < nb; b++) {
            prefetch_block(t, w, b);
            block_scales(t, w, b, &s);
            for (int h = 0; h < 2; h++) {
                float *f = (float *)(void *)(p + 512 + 32 * h);
#pragma GCC unroll 8
                for (int g = 0; g < 8; g++)
                    _mm256_storeu_si256((__m256i *)(p + 64 * g + 32 * h),
                                        _mm256_add_epi8(codes(t, q, g, h), more));
                _mm256_storeu_ps(f, s.s[h]);
                if (mm_has_min(kind))
                    _mm256_storeu_ps(f + 16, s.m[h]);
                if (mm_has_two(kind))
                    _mm256_storeu_ps(f + 16, s.s2[h]);
                if (kind == MM_MIN16) {
                    _mm256_storeu_ps(f + 32, s.m[h]);
                    _mm256_storeu_ps(f + 48, s.m2[h]);
                }
            }
            q += 64 * mm_layout[t].lines;
            p += panel_block(kind);
        }
        w = q;
    }
}

INLINE void panel(enum mm_panel kind, int n, const uint8_t *w, const uint8_t *x, int n_in,
                  float *out)
{
    __m256 acc[2 * MM_TILE];

#pragma GCC unroll 8
    for (int i = 0; i < 2 * n; i++)
        acc[i] = _mm256_setzero_ps();
    for (int b = 0; b < n_in / 32; b++, w += panel_block(kind), x += mm_rec_bytes(n)) {
        const float *f = (const float *)(const void *)(w + 512);
        struct scales s;

        for (int h = 0; h < 2; h++) {
            s.s[h] = _mm256_loadu_ps(f + 8 * h);
            if (mm_has_min(kind))
                s.m[h] = _mm256_loadu_ps(f + 16 + 8 * h);
            if (mm_has_two(kind))
                s.s2[h] = _mm256_loadu_ps(f + 16 + 8 * h);
            if (kind == MM_MIN16) {
                s.m[h] = _mm256_loadu_ps(f + 32 + 8 * h);
                s.m2[h] = _mm256_loadu_ps(f + 48 + 8 * h);
            }
        }
        add_block(kind, UNPACKED, panel_zero(kind), n, 0, w, &s, x, acc);
    }
    store_acc(acc, n, out);
}

INLINE __m256 load_row(enum dtype t, const uint8_t *w, size_t k, int half)
{
    w += (t == DT_F32 ? 64 : 32) * k + (size_t)(t == DT_F32 ? 32 : 16) * (size_t)half;
    if (t == DT_F32)
        return _mm256_loadu_ps((const float *)(const void *)w);
    if (t == DT_F16)
        return load_f16(w);
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)w)), 16));
}

/* One chain of additions a row. */
INLINE void direct_float(enum dtype t, int n, const uint8_t *w, const float *x, int n_in,
                         float *out)
{
    __m256 acc[2 * MM_TILE];

#pragma GCC unroll 8
    for (int i = 0; i < 2 * n; i++)
        acc[i] = _mm256_setzero_ps();
    for (size_t k = 0; k < (size_t)n_in; k++, x += n) {
        const __m256 w0 = load_row(t, w, k, 0), w1 = load_row(t, w, k, 1);
        prefetch(w + (t == DT_F32 ? 64 : 32) * k, 1);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const __m256 v = _mm256_set1_ps(x[i]);
            acc[2 * i] = _mm256_fmadd_ps(w0, v, acc[2 * i]);
            acc[2 * i + 1] = _mm256_fmadd_ps(w1, v, acc[2 * i + 1]);
        }
    }
    store_acc(acc, n, out);
}

MM_DEFINE_DIRECT
MM_DEFINE_PANEL

const struct kern_mm MM_AVX2 = {
    .tile = MM_TILE,
    .direct_max = MM_TILE,
    .panel_rows = MM_ROWS,
    .quantize = quantize,
    .quantize_batch = quantize_words,
    MM_DIRECT_TABLE,
    MM_PANEL_TABLE,
};
