/* SPDX-License-Identifier: MIT */
/* attn_kivi_i8_avx512.c - a token's attention over blocks of 32 numbers on 2 or 4 bits. A number is
 * centre + (code - middle) * step. The centres' part is summed in f32. The codes are multiplied as
 * bytes. The other factor, query or weight times step, is rounded to bytes as well, relative to the
 * largest of 64 channels or of a block's tokens. Since the codes are spread around 0, this rounding
 * adds little to the quantisation error (errors add as squares): 2 to 7 % with 4 bits, below 0.5 %
 * with 2. */
#include <immintrin.h>
#include <string.h>

#include "attn_i16.h"

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

enum {
    GROUPS = KEY_BLOCK / KIVI_GROUP,
    PART = 64, /* channels that share a quantisation unit */
    PARTS = CB_KIVI_MAX_HD / PART,
};

INLINE __m512i iota(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* ---- blocks ---- */

/* Interleaves the codes of four blocks: lane i gets numbers i and i + 16 of each block */
struct quad {
    __m512i at, shift[2];
};

/* first: the byte offsets of the four blocks' codes */
INLINE struct quad quad(int bits, uint32_t first)
{
    const __m512i lane = _mm512_and_si512(iota(), _mm512_set1_epi32(bits == 4 ? 15 : 7));
    const __m512i all = _mm512_mullo_epi32(lane, _mm512_set1_epi32(0x01010101));
    const __m512i behind = _mm512_srli_epi32(iota(), 3); /* 2 bits: lanes 8.. take the next 2 */
    struct quad t;

    t.at = _mm512_add_epi8(all, _mm512_set1_epi32((int)first));
    t.shift[0] = bits == 4 ? _mm512_setzero_si512() : _mm512_slli_epi32(behind, 1);
    t.shift[1] = _mm512_add_epi32(t.shift[0], _mm512_set1_epi32(4));
    return t;
}

INLINE void split(int bits, __m512i x, const struct quad *t, __m512i *y)
{
    const __m512i mask = _mm512_set1_epi8(bits == 4 ? 15 : 3);

    UNROLL
    for (int i = 0; i < 2; i++)
        y[i] = _mm512_and_si512(_mm512_srlv_epi32(x, t->shift[i]), mask);
}

/* Four adjacent blocks. With 4 bits, the last block's codes are at byte 48 of a second vector. */
INLINE struct quad quad_beside(int bits)
{
    return quad(bits, bits == 4 ? 0x70281400 : 0x281c1004);
}

INLINE void open_beside(int bits, const uint8_t *at, const struct quad *t, __m512i *y)
{
    if (bits == 4)
        split(4,
              _mm512_permutex2var_epi8(_mm512_loadu_si512(at + 4), t->at,
                                       _mm512_loadu_si512(at + 16)),
              t, y);
    else
        split(2, _mm512_permutexvar_epi8(t->at, _mm512_maskz_loadu_epi32(0xfff, at)), t, y);
}

/* Four blocks, `at` bytes into four rows */
INLINE struct quad quad_of_rows(int bits)
{
    return quad(bits, bits == 4 ? 0x30201000 : 0x18100800);
}

INLINE __m128i two_halves(const uint8_t *a, const uint8_t *b)
{
    return _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)a), _mm_loadl_epi64((const void *)b));
}

INLINE void open_rows(int bits, const uint8_t *const *row, size_t at, const struct quad *t,
                      __m512i *y)
{
    const uint8_t *const a = row[0] + at + 4, *const b = row[1] + at + 4,
                         *const c = row[2] + at + 4, *const d = row[3] + at + 4;
    __m512i x;

    if (bits == 4)
        x = _mm512_inserti64x4(
            _mm512_castsi256_si512(_mm256_loadu2_m128i((const void *)b, (const void *)a)),
            _mm256_loadu2_m128i((const void *)d, (const void *)c), 1);
    else
        x = _mm512_castsi256_si512(_mm256_set_m128i(two_halves(c, d), two_halves(a, b)));
    split(bits, _mm512_permutexvar_epi8(t->at, x), t, y);
}

/* The heads of 16 consecutive blocks: every fifth (4 bits) or third (2 bits) dword */
INLINE __m512i heads_16(int bits, const uint8_t *at)
{
    const __m512i i = _mm512_mullo_epi32(iota(), _mm512_set1_epi32(1 + bits)); /* modulo 32 */
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

INLINE void open_heads(__m512i head, float middle, float *step, float *centre)
{
    __m512 s, min;

    cb_kivi_heads(head, &s, &min);
    _mm512_storeu_ps(step, s);
    _mm512_storeu_ps(centre, _mm512_fmadd_ps(s, _mm512_set1_ps(middle), min));
}

/* ---- rows of queries or weights ---- */

/* The other factor of the codes: bytes, and the numbers that turn products of bytes into sums */
struct taken {
    _Alignas(64) int32_t byte[MAX_TILE][CB_KIVI_MAX_HD / 4];
    float unit[16], base[16]; /* sum = products * unit + base */
};

INLINE __m512 larger_or_sum(int larger, __m512 a, __m512 b)
{
    return larger ? _mm512_max_ps(a, b) : _mm512_add_ps(a, b);
}

/* The largest element (or the sum) of each of x[m]: lane r holds the result of x[r] */
INLINE __m512 across(int larger, int m, const __m512 *x)
{
    __m512 y = _mm512_setzero_ps();

    UNROLL
    for (int r = 0; r < m; r += 4) {
        const __m512 zero = _mm512_setzero_ps(), a = x[r], b = r + 1 < m ? x[r + 1] : zero,
                     c = r + 2 < m ? x[r + 2] : zero, d = r + 3 < m ? x[r + 3] : zero;
        const __m512 ab = larger_or_sum(larger, _mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        const __m512 cd = larger_or_sum(larger, _mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
        const __m512 abcd =
            larger_or_sum(larger, _mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
        const __m512 two = larger_or_sum(larger, abcd, _mm512_shuffle_f32x4(abcd, abcd, 0x4e));
        const __m512 one = larger_or_sum(larger, two, _mm512_shuffle_f32x4(two, two, 0xb1));
        y = r ? _mm512_mask_mov_ps(y, (__mmask16)(0xf << r), one) : one;
    }
    return y;
}

/* Stores x for scalar reads. The barrier makes them loads; otherwise compilers shuffle each out of
 * the vector. */
INLINE void leave(__m512 x, float *y)
{
    _mm512_storeu_ps(y, x);
    __asm__("" : : "r"(y) : "memory");
}

/* Whole numbers as floats with 1.5 * 2^23 added -> their lowest bytes: those of a, then of b */
INLINE __m256i low_bytes(__m512 a, __m512 b)
{
    const __m256i at =
        _mm256_setr_epi8(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68, 72,
                         76, 80, 84, 88, 92, 96, 100, 104, 108, 112, 116, 120, 124);
    return _mm512_castsi512_si256(_mm512_permutex2var_epi8(
        _mm512_castps_si512(a), _mm512_zextsi256_si512(at), _mm512_castps_si512(b)));
}

INLINE __m512 whole(__m512 x, __m512 factor)
{
    return _mm512_fmadd_ps(x, factor, _mm512_set1_ps(12582912.0f));
}

INLINE void clear(int m, __m512i (*acc)[2])
{
    UNROLL
    for (int r = 0; r < m; r++)
        acc[r][0] = acc[r][1] = _mm512_setzero_si512();
}

/* acc += numbers 0-15 and 16-31 of four blocks times the four bytes k of each row. The unsigned
 * factor is the codes for keys, the weights for values. */
INLINE void add_products(int keys, int m, const __m512i *x, const struct taken *y, int k,
                         __m512i (*acc)[2])
{
    UNROLL
    for (int r = 0; r < m; r++) {
        const __m512i z = _mm512_set1_epi32(y->byte[r][k]);
        UNROLL
        for (int i = 0; i < 2; i++)
            cb_dot_bytes(&acc[r][i], keys ? x[i] : z, keys ? z : x[i]);
    }
}

INLINE __m512 finished(const struct taken *y, int r, __m512i acc)
{
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc), _mm512_set1_ps(y->unit[r]),
                           _mm512_set1_ps(y->base[r]));
}

/* Prefetches quad k's lines of the n quads at `ahead`, into L2, so that no read waits */
INLINE void ask_for(int bits, const uint8_t *ahead, int k, int n)
{
    __builtin_prefetch(ahead + 64 * k, 0, 2);
    if (bits == 4 && k < n / 4)
        __builtin_prefetch(ahead + 64 * (n + k), 0, 2);
}

/* ---- logits ---- */

/* A block of a group belongs to one channel, so its step is multiplied into the queries.
 * [GROUPS][hd]; top[hd]: the largest steps */
struct key_heads {
    float step[GROUPS * CB_KIVI_MAX_HD], centre[GROUPS * CB_KIVI_MAX_HD], top[CB_KIVI_MAX_HD];
};

/* Codes stay unsigned, from 0 on; their middle is subtracted through the queries' sums. */
INLINE void open_key_heads(int bits, const uint8_t *group, int n, int hd, struct key_heads *h)
{
    const size_t bytes = 4 + 4 * (size_t)bits;
    const float middle = bits == 4 ? 7.5f : 1.5f;

    for (int c = 0; c < hd; c += 16) {
        __m512 top = _mm512_setzero_ps();
        for (int i = c; i < n * hd; i += hd) {
            open_heads(heads_16(bits, group + (size_t)i * bytes), middle, h->step + i,
                       h->centre + i);
            top = _mm512_max_ps(top, _mm512_loadu_ps(h->step + i));
        }
        _mm512_storeu_ps(h->top + c, top);
    }
}

/* Queries scaled for the steps of a part of n channels: x[m][n] = q / unit, so that x times a step
 * is within -127..127 */
struct scaled {
    _Alignas(64) float x[MAX_TILE * PART], unit[16];
};

INLINE void scale_queries(int m, const float *const *q, int from, const float *top_step, int n,
                          struct scaled *y)
{
    const __m512 most = _mm512_set1_ps(127.0f), tiny = _mm512_set1_ps(1e-20f);
    __m512 top[MAX_TILE], all;
    float inv[16];

    UNROLL
    for (int r = 0; r < m; r++)
        top[r] = _mm512_setzero_ps();
    for (int i = 0; i < n; i += 16) {
        const __m512 s = _mm512_loadu_ps(top_step + i);
        UNROLL
        for (int r = 0; r < m; r++)
            top[r] =
                _mm512_range_ps(top[r], _mm512_mul_ps(_mm512_loadu_ps(q[r] + from + i), s), 0xb);
    }
    all = across(1, m, top);
    /* not scaled where the products are negligible */
    all = _mm512_mask_mov_ps(most, _mm512_cmp_ps_mask(all, tiny, _CMP_GT_OQ), all);
    _mm512_storeu_ps(y->unit, _mm512_div_ps(all, most));
    leave(_mm512_div_ps(most, all), inv);
    UNROLL
    for (int r = 0; r < m; r++)
        for (int i = 0; i < n; i += 16)
            _mm512_storeu_ps(y->x + r * n + i, _mm512_mul_ps(_mm512_loadu_ps(q[r] + from + i),
                                                             _mm512_set1_ps(inv[r])));
}

/* Multiplies scaled queries by a group's steps */
INLINE void take_queries(int bits, int m, const struct scaled *q, const float *step,
                         const float *centre, int n, float scale, struct taken *y)
{
    const __m256i twice_middle = _mm256_set1_epi8(bits == 4 ? 15 : 3);
    const __m512 unit = _mm512_mul_ps(_mm512_loadu_ps(q->unit), _mm512_set1_ps(scale));
    __m256i sum[MAX_TILE];
    __m512 base[MAX_TILE];

    UNROLL
    for (int r = 0; r < m; r++) {
        sum[r] = _mm256_setzero_si256();
        base[r] = _mm512_setzero_ps();
    }
    for (int i = 0; i < n; i += 32) {
        const __m512 s[2] = { _mm512_loadu_ps(step + i), _mm512_loadu_ps(step + i + 16) };
        const __m512 c[2] = { _mm512_loadu_ps(centre + i), _mm512_loadu_ps(centre + i + 16) };
        UNROLL
        for (int r = 0; r < m; r++) {
            const __m512 u = _mm512_loadu_ps(q->x + r * n + i);
            const __m512 w = _mm512_loadu_ps(q->x + r * n + i + 16);
            const __m256i z = low_bytes(whole(u, s[0]), whole(w, s[1]));
            _mm256_storeu_si256((void *)(y->byte[r] + i / 4), z);
            sum[r] = _mm256_dpbusd_epi32(sum[r], twice_middle, z);
            base[r] = _mm512_fmadd_ps(w, c[1], _mm512_fmadd_ps(u, c[0], base[r]));
        }
    }
    UNROLL
    for (int r = 0; r < m; r++)
        base[r] = _mm512_sub_ps(_mm512_add_ps(base[r], base[r]),
                                _mm512_cvtepi32_ps(_mm512_zextsi256_si512(sum[r])));
    _mm512_storeu_ps(y->unit, unit);
    leave(_mm512_mul_ps(across(0, m, base), _mm512_mul_ps(unit, _mm512_set1_ps(0.5f))), y->base);
}

INLINE void leave_logits(int m, const struct taken *y, __m512i (*acc)[2], int add, float *logit)
{
    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int i = 0; i < 2; i++) {
        float *to = logit + r * KEY_BLOCK + 16 * i;
        const __m512 sum = finished(y, r, acc[r][i]);
        _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), sum) : sum);
    }
}

INLINE void key_tile(int bits, int m, const uint8_t *group, int n, const struct key_heads *h,
                     const float *const *q, float scale, int hd, const uint8_t *ahead, float *logit)
{
    const size_t bytes = 4 + 4 * (size_t)bits;
    const struct quad t = quad_beside(bits);
    struct scaled scaled[PARTS];
    struct taken y;

    for (int c = 0; c < hd; c += PART)
        scale_queries(m, q, c, h->top + c, hd - c < PART ? hd - c : PART, scaled + c / PART);
    for (int g = 0; g < n; g++, logit += KIVI_GROUP)
        for (int c = 0; c < hd; c += PART) {
            const int width = hd - c < PART ? hd - c : PART;
            __m512i acc[MAX_TILE][2];
            take_queries(bits, m, scaled + c / PART, h->step + g * hd + c, h->centre + g * hd + c,
                         width, scale, &y);
            clear(m, acc);
            for (int k = 0; k < width / 4; k++, group += 4 * bytes) {
                __m512i x[2];
                open_beside(bits, group, &t, x);
                ask_for(bits, ahead, k, width / 4);
                add_products(1, m, x, &y, k, acc);
            }
            ahead += (size_t)width * bytes;
            leave_logits(m, &y, acc, c > 0, logit);
        }
}

#define KEYS_4(m) key_tile(4, m, group, n, &h, q + r, scale, hd, ahead, logit + r * KEY_BLOCK)
#define KEYS_2(m) key_tile(2, m, group, n, &h, q + r, scale, hd, ahead, logit + r * KEY_BLOCK)
static void logits(int bits, const uint8_t *group, int n, const float *const *q, float scale,
                   int rows, int hd, const uint8_t *ahead, float *logit)
{
    struct key_heads h;

    if (bits == 4)
        open_key_heads(4, group, n, hd, &h);
    else
        open_key_heads(2, group, n, hd, &h);
    for (int r = 0, m; r < rows; r += m) {
        m = rows - r < MAX_TILE ? rows - r : MAX_TILE;
        if (bits == 4)
            I16_HEIGHTS(m, KEYS_4)
        else
            I16_HEIGHTS(m, KEYS_2)
    }
}

/* ---- sums of values ---- */

/* [hd / 32][KEY_BLOCK]. A block belongs to 32 dims of one token, so its step is multiplied into the
 * token's weights. */
struct value_heads {
    float step[CB_KIVI_MAX_HD / 32 * KEY_BLOCK], centre[CB_KIVI_MAX_HD / 32 * KEY_BLOCK];
};

/* De-interleaves x[n][2]: y gets the first of each pair, then the second of each */
INLINE void part(const uint32_t *x, int n, uint32_t *y)
{
    const __m512i even = _mm512_slli_epi32(iota(), 1);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));

    for (int i = 0; i < n; i += 16) {
        const __m512i a = _mm512_loadu_si512(x + 2 * i), b = _mm512_loadu_si512(x + 2 * i + 16);
        _mm512_storeu_si512(y + i, _mm512_permutex2var_epi32(a, even, b));
        _mm512_storeu_si512(y + n + i, _mm512_permutex2var_epi32(a, odd, b));
    }
}

/* Heads of KEY_BLOCK rows of n blocks -> head[n][KEY_BLOCK] */
INLINE void copy_heads(int bits, const uint8_t *const *row, int n, uint32_t *head)
{
    const size_t bytes = 4 + 4 * (size_t)bits;
    uint32_t x[KEY_BLOCK * 2];

    if (n == 2 && row[KEY_BLOCK - 1] == row[0] + (KEY_BLOCK - 1) * 2 * bytes) { /* adjacent rows */
        for (int i = 0; i < 2 * KEY_BLOCK; i += 16)
            _mm512_storeu_si512(x + i, heads_16(bits, row[0] + (size_t)i * bytes));
        part(x, KEY_BLOCK, head);
        return;
    }
    for (int i = 0; i < n; i++, head += KEY_BLOCK)
        for (int j = 0; j < KEY_BLOCK; j++)
            memcpy(head + j, row[j] + (size_t)i * bytes, sizeof *head);
}

/* Reads the heads; the codes become signed by subtracting their middle. */
INLINE void open_value_heads(int bits, const uint8_t *const *row, int hd, struct value_heads *h)
{
    uint32_t head[CB_KIVI_MAX_HD / 32 * KEY_BLOCK];

    copy_heads(bits, row, hd / 32, head);
    for (int i = 0; i < hd / 32 * KEY_BLOCK; i += 16)
        open_heads(_mm512_loadu_si512(head + i), bits == 4 ? 8.0f : 2.0f, h->step + i,
                   h->centre + i);
}

/* A row of weights p[KEY_BLOCK], none negative, times steps -> unsigned bytes. Returns the centres'
 * part of the sum, spread over the lanes. */
INLINE __m512 take_weights(const float *p, const float *step, const float *centre, int32_t *byte,
                           float *unit)
{
    __m512 x[KEY_BLOCK / 16], top = _mm512_setzero_ps(), base = top, inv;
    float most;

    UNROLL
    for (int i = 0; i < KEY_BLOCK / 16; i++) {
        const __m512 w = _mm512_loadu_ps(p + 16 * i);
        x[i] = _mm512_mul_ps(w, _mm512_loadu_ps(step + 16 * i));
        base = _mm512_fmadd_ps(w, _mm512_loadu_ps(centre + 16 * i), base);
        top = _mm512_max_ps(top, x[i]);
    }
    most = _mm512_reduce_max_ps(top);
    inv = _mm512_set1_ps(most > 1e-30f ? 255.0f / most : 0.0f);
    *unit = most * (1.0f / 255.0f);
    UNROLL
    for (int i = 0; i < KEY_BLOCK / 16; i += 2)
        _mm256_storeu_si256((void *)(byte + 4 * i),
                            low_bytes(whole(x[i], inv), whole(x[i + 1], inv)));
    return base;
}

INLINE void value_tile(int bits, int m, const uint8_t *const *row, const struct value_heads *h,
                       const float *const *p, const float *keep, int hd, const uint8_t *ahead,
                       float *o)
{
    const size_t bytes = 4 + 4 * (size_t)bits;
    const __m512i middle = _mm512_set1_epi8(bits == 4 ? 8 : 2);
    const struct quad t = quad_of_rows(bits);
    struct taken y;

    for (int c = 0; c < hd / 32; c++, o += 32) {
        __m512i acc[MAX_TILE][2];
        __m512 base[MAX_TILE];
        UNROLL
        for (int r = 0; r < m; r++)
            base[r] = take_weights(p[r], h->step + c * KEY_BLOCK, h->centre + c * KEY_BLOCK,
                                   y.byte[r], y.unit + r);
        leave(across(0, m, base), y.base);
        clear(m, acc);
        for (int k = 0; k < KEY_BLOCK / 4; k++) {
            __m512i x[2];
            open_rows(bits, row + 4 * k, (size_t)c * bytes, &t, x);
            ask_for(bits, ahead, k, KEY_BLOCK / 4);
            x[0] = _mm512_sub_epi8(x[0], middle);
            x[1] = _mm512_sub_epi8(x[1], middle);
            add_products(0, m, x, &y, k, acc);
        }
        ahead += KEY_BLOCK * bytes;
        UNROLL
        for (int r = 0; r < m; r++)
            UNROLL
        for (int i = 0; i < 2; i++) {
            float *to = o + r * hd + 16 * i;
            _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_loadu_ps(to), _mm512_set1_ps(keep[r]),
                                                 finished(&y, r, acc[r][i])));
        }
    }
}

#define VALUES_4(m) value_tile(4, m, row, &h, p, soft->factor + r, hd, ahead, o + r * hd)
#define VALUES_2(m) value_tile(2, m, row, &h, p, soft->factor + r, hd, ahead, o + r * hd)
static void pv(int bits, const uint8_t *const *row, const struct kern_soft *soft, int hd,
               const uint8_t *ahead, float *o)
{
    struct value_heads h;

    if (bits == 4)
        open_value_heads(4, row, hd, &h);
    else
        open_value_heads(2, row, hd, &h);
    for (int r = 0, m; r < soft->rows; r += m) {
        const float *p[MAX_TILE];
        m = soft->rows - r < MAX_TILE ? soft->rows - r : MAX_TILE;
        for (int i = 0; i < m; i++)
            p[i] = soft->s + (r + i) * KEY_BLOCK;
        if (bits == 4)
            I16_HEIGHTS(m, VALUES_4)
        else
            I16_HEIGHTS(m, VALUES_2)
    }
}

const struct kern_kivi_dots cb_kivi_dots_avx512vbmi = { logits, pv };
