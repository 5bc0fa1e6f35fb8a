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

/* The heads of 16 blocks, one behind the other: every fifth or third dword */
INLINE __m512i heads_16(int bits, const uint8_t *at)
{
    const __m512i iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i i = _mm512_mullo_epi32(iota, _mm512_set1_epi32(1 + bits)); /* modulo 32 */
    __m512i x[5], y;

    UNROLL
    for (int c = 0; c < 1 + bits; c++)
        x[c] = _mm512_loadu_si512(at + 64 * c);
    y = _mm512_permutex2var_epi32(x[0], i, x[1]);
    if (bits == 2)
        return _mm512_mask_permutexvar_epi32(y, 0xf800, i, x[2]);
    y = _mm512_mask_mov_epi32(y, 0x1f80, _mm512_permutex2var_epi32(x[2], i, x[3]));
    return _mm512_mask_permutexvar_epi32(y, 0xe000, i, x[4]);
}

/* How the codes of two blocks become bf16 beside each other */
struct look_up {
    __m512i word, shift[2], bf16;
};

/* Word i: of the two blocks the word that holds number i of each, and where. What is above a code's bits
 * in the 5 of an index does not matter: the table goes on from the start. */
INLINE struct look_up look_up(int bits)
{
    static const uint16_t x[16] = {
        0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0,
        0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170
    };
    const __m512i iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i both = _mm512_or_si512(iota, _mm512_slli_epi32(iota, 16));
    const __m512i one = _mm512_set1_epi16(1), odd = _mm512_and_si512(both, one);
    const __m512i second = _mm512_srli_epi16(both, 3); /* half of the numbers */
    __m512i word = _mm512_srli_epi16(both, 1), at = _mm512_slli_epi16(odd, 3);
    struct look_up t;

    if (bits == 4) {
        t.bf16 = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)x));
        word = _mm512_mask_add_epi16(word, 0xaaaaaaaa, word, _mm512_set1_epi16(8));
    } else {
        t.bf16 = _mm512_broadcastq_epi64(_mm_loadl_epi64((const void *)x));
        word = _mm512_and_si512(word, _mm512_set1_epi16(3));
        word = _mm512_mask_add_epi16(word, 0xaaaaaaaa, word, _mm512_set1_epi16(4));
        at = _mm512_add_epi16(at, _mm512_slli_epi16(_mm512_and_si512(second, one), 1));
    }
    t.word = word;
    t.shift[0] = at;
    t.shift[1] = _mm512_add_epi16(at, _mm512_set1_epi16(4));
    return t;
}

/* The codes of two blocks beside each other, a pair a lane: 0..15 -> y[0], 16..31 -> y[1] */
INLINE void open_pair(int bits, const uint8_t *a, const uint8_t *b, const struct look_up *t,
                      __m512i *y)
{
    __m512i w;

    if (bits == 4)
        w = _mm512_castsi256_si512(_mm256_loadu2_m128i((const void *)b, (const void *)a));
    else
        w = _mm512_castsi128_si512(
            _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)a), _mm_loadl_epi64((const void *)b)));
    w = _mm512_permutexvar_epi16(t->word, w);
    UNROLL
    for (int i = 0; i < 2; i++)
        y[i] = _mm512_permutexvar_epi16(_mm512_srlv_epi16(w, t->shift[i]), t->bf16);
}

/* out[m] = what each of x sums up to */
INLINE void sum_lanes(int m, const __m512 *x, float *out)
{
    UNROLL
    for (int r = 0; r < m; r += 4) {
        const __m512 zero = _mm512_setzero_ps(), a = x[r], b = r + 1 < m ? x[r + 1] : zero,
                     c = r + 2 < m ? x[r + 2] : zero, d = r + 3 < m ? x[r + 3] : zero;
        const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
        const __m512 y =
            _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
        const __m256 z = _mm256_add_ps(_mm512_castps512_ps256(y), _mm512_extractf32x8_ps(y, 1));
        _mm_storeu_ps(out + r, _mm_add_ps(_mm256_castps256_ps128(z), _mm256_extractf128_ps(z, 1)));
    }
}

/* Blocks to multiply, 32 with each step: side by side, or 32 dims of rows after those of the rows before.
 * Each `period` steps make a sum of x[m][32 * period] times numbers, 32 wide. */
struct stream {
    int n, period;
    const uint8_t *first, *const *row;
    const uint32_t *head;  /* [n][32] of rows' blocks */
    const uint8_t *ahead;  /* to be asked for meanwhile */
    const float *const *x; /* [m] */
    float factor;
    float *out; /* [m], `stride` apart; the next sum is 32 behind */
    int stride;
    const float *keep; /* [m]: how much of what was there stays; NULL: nothing */
};

/* What a step takes: x times steps as pairs of neighbours, and sums of x times smallest numbers */
struct taken {
    uint32_t y[2][MAX_TILE][16];
    __m512 base[MAX_TILE];
};

struct heads {
    __m512 step[2], min[2];
};

INLINE struct heads heads_of(int bits, const struct stream *s, int k)
{
    const size_t bytes = 4 + 4 * (size_t)bits;
    const __m512 factor = _mm512_set1_ps(s->factor);
    struct heads h;

    UNROLL
    for (int i = 0; i < 2; i++) {
        const size_t at = 32 * (size_t)k + 16 * (size_t)i;
        cb_kivi_heads(s->row ? _mm512_loadu_si512(s->head + at)
                             : heads_16(bits, s->first + at * bytes),
                      &h.step[i], &h.min[i]);
        h.step[i] = _mm512_mul_ps(h.step[i], factor);
        h.min[i] = _mm512_mul_ps(h.min[i], factor);
    }
    return h;
}

INLINE void take_row(const struct heads *h, const float *x, uint32_t *y, __m512 *base)
{
    const __m512 u = _mm512_loadu_ps(x), w = _mm512_loadu_ps(x + 16);

    _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(w, h->step[1]),
                                                        _mm512_mul_ps(u, h->step[0])));
    *base = _mm512_fmadd_ps(w, h->min[1], _mm512_fmadd_ps(u, h->min[0], *base));
}

/* acc[m][2] += 32 blocks times what was taken; meanwhile the next step takes its own from h and x, or the
 * products would wait for it */
INLINE void step(int bits, int m, const struct stream *s, int k, const struct look_up *t,
                 const struct heads *h, int at, struct taken *to, __m512 (*acc)[2])
{
    const size_t bytes = 4 + 4 * (size_t)bits;
    const uint8_t *const *row = s->row ? s->row + 32 * (k % s->period) : NULL;
    const uint8_t *first = s->row ? NULL : s->first + 32 * (size_t)k * bytes;
    const size_t dim = s->row ? (size_t)(k / s->period) * bytes : 0;
    uint32_t(*y)[16] = to->y[k & 1], (*next)[16] = to->y[~k & 1];

    _Pragma("GCC unroll 2")
    for (int i = 0; i < 16; i++) {
        const uint8_t *a = s->row ? row[2 * i] + dim : first + 2 * (size_t)i * bytes;
        const uint8_t *b = s->row ? row[2 * i + 1] + dim : a + bytes;
        __m512i x[2];
        open_pair(bits, a + 4, b + 4, t, x);
        if (i < 2 * (1 + bits))
            __builtin_prefetch(s->ahead + 32 * (size_t)k * bytes + 64 * i, 0, 3);
        if (i < m)
            take_row(h, s->x[i] + at, next[i], &to->base[i]);
        UNROLL
        for (int r = 0; r < m; r++) {
            const __m512i z = _mm512_set1_epi32((int)y[r][i]);
            cb_dot_bf16(&acc[r][0], x[0], z);
            cb_dot_bf16(&acc[r][1], x[1], z);
        }
    }
}

INLINE void finish(int m, const struct stream *s, const float *base, float *out, __m512 (*acc)[2])
{
    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int i = 0; i < 2; i++) {
        float *to = out + r * s->stride + 16 * i;
        __m512 x = _mm512_add_ps(acc[r][i], _mm512_set1_ps(base[r]));
        if (s->keep)
            x = _mm512_fmadd_ps(_mm512_loadu_ps(to), _mm512_set1_ps(s->keep[r]), x);
        _mm512_storeu_ps(to, x);
        acc[r][i] = _mm512_setzero_ps();
    }
}

INLINE void run(int bits, int m, const struct stream *s)
{
    const struct look_up t = look_up(bits);
    struct heads h = heads_of(bits, s, 0);
    float base[MAX_TILE];
    float *out = s->out;
    struct taken to;
    __m512 acc[MAX_TILE][2];

    UNROLL
    for (int r = 0; r < m; r++) {
        to.base[r] = acc[r][0] = acc[r][1] = _mm512_setzero_ps();
        take_row(&h, s->x[r], to.y[0][r], &to.base[r]);
    }
    for (int k = 0, at = 32; k < s->n; k++, at += 32) {
        const int last = at == 32 * s->period;
        h = heads_of(bits, s, k + 1 < s->n ? k + 1 : k);
        if (last) {
            at = 0;
            sum_lanes(m, to.base, base);
            UNROLL
            for (int r = 0; r < m; r++)
                to.base[r] = _mm512_setzero_ps();
        }
        step(bits, m, s, k, &t, &h, at, &to, acc);
        if (last) {
            finish(m, s, base, out, acc);
            out += 32;
        }
    }
}

/* ---- logits ---- */

#define RUN_4(m) run(4, m, &s)
#define RUN_2(m) run(2, m, &s)
void cb_kivi_logits_bf16(int bits, const uint8_t *group, int n, const float *const *q, float scale,
                         int rows, int hd, float *logit)
{
    const size_t bytes = 4 + 4 * (size_t)bits;

    for (int r = 0, m; r < rows; r += m) {
        const struct stream s = { .n = n * (hd / 32),
                                  .period = hd / 32,
                                  .first = group,
                                  .ahead = group + KEY_BLOCK / 32 * (size_t)hd * bytes,
                                  .x = q + r,
                                  .factor = scale,
                                  .out = logit + r * KEY_BLOCK,
                                  .stride = KEY_BLOCK };
        m = rows - r < MAX_TILE ? rows - r : MAX_TILE;
        if (bits == 4)
            I16_HEIGHTS(m, RUN_4)
        else
            I16_HEIGHTS(m, RUN_2)
    }
}

/* ---- sums of values ---- */

/* x[n][2] -> those in front, then those behind */
static void part(const uint32_t *x, int n, uint32_t *y)
{
    const __m512i iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i even = _mm512_slli_epi32(iota, 1);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));

    for (int i = 0; i < n; i += 16) {
        const __m512i a = _mm512_loadu_si512(x + 2 * i), b = _mm512_loadu_si512(x + 2 * i + 16);
        _mm512_storeu_si512(y + i, _mm512_permutex2var_epi32(a, even, b));
        _mm512_storeu_si512(y + n + i, _mm512_permutex2var_epi32(a, odd, b));
    }
}

/* Heads of rows of n blocks -> head[n][KEY_BLOCK] */
static void copy_heads(int bits, const uint8_t *const *row, int n, uint32_t *head)
{
    const size_t bytes = 4 + 4 * (size_t)bits;
    uint32_t x[KEY_BLOCK * 2];

    if (n == 2 && row[KEY_BLOCK - 1] == row[0] + (KEY_BLOCK - 1) * 2 * bytes) { /* side by side */
        for (int i = 0; i < 2 * KEY_BLOCK; i += 16)
            _mm512_storeu_si512(x + i, bits == 4 ? heads_16(4, row[0] + (size_t)i * bytes)
                                                 : heads_16(2, row[0] + (size_t)i * bytes));
        part(x, KEY_BLOCK, head);
        return;
    }
    for (int i = 0; i < n; i++, head += KEY_BLOCK)
        for (int j = 0; j < KEY_BLOCK; j++)
            memcpy(head + j, row[j] + (size_t)i * bytes, sizeof *head);
}

void cb_kivi_values_bf16(int bits, const uint8_t *const *row, const struct kern_soft *soft, int hd,
                         float *o)
{
    const size_t bytes = 4 + 4 * (size_t)bits;
    uint32_t head[KEY_BLOCK * CB_KIVI_MAX_HD / 32];

    copy_heads(bits, row, hd / 32, head);
    for (int r0 = 0, m; r0 < soft->rows; r0 += m) {
        const float *p[MAX_TILE];
        const struct stream s = { .n = KEY_BLOCK / 32 * (hd / 32),
                                  .period = KEY_BLOCK / 32,
                                  .row = row,
                                  .head = head,
                                  .ahead = row[0] + KEY_BLOCK * (size_t)(hd / 32) * bytes,
                                  .x = p,
                                  .factor = 1.0f,
                                  .out = o + r0 * hd,
                                  .stride = hd,
                                  .keep = soft->factor + r0 };
        m = soft->rows - r0 < MAX_TILE ? soft->rows - r0 : MAX_TILE;
        for (int r = 0; r < m; r++)
            p[r] = soft->s + (r0 + r) * KEY_BLOCK;
        if (bits == 4)
            I16_HEIGHTS(m, RUN_4)
        else
            I16_HEIGHTS(m, RUN_2)
    }
}
