/* SPDX-License-Identifier: MIT */
/* attn_q8_avx512.c - attention over q8_0 rows in integers. Logits: a key's codes, made unsigned,
 * times a query of 15 bits: with VNNI in two planes of 7 and 8 bits, else as words. The products
 * are exact; only the query and the scales are rounded. Values: their codes unchanged, as pairs of
 * keys. */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "attn_i16.h"
#include "cpu/vector/vec.h"

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

enum {
    PANEL = 32, /* keys of a panel */
    QUADS = 8,  /* 32-bit groups of four codes in a block of 32 */
    STEPS = 127 * 128,
};

/* A block of a packed query tile of m rows: int32 code[QUADS][2][m], start[2][m], float scale[m].
 * The two parts of a quad of codes are their planes, or words 0, 2 and words 1, 3; `start` is where
 * the sum of each part begins: it subtracts 128 times the codes' sum, because keys are stored with
 * 128 added. A block of a packed panel of keys: uint8 code[QUADS][PANEL][4], float scale[PANEL]. */
static size_t q_bytes(int hd)
{
    return (size_t)(hd / 32) * (QUADS * 2 + 3) * 4;
}

static size_t k_bytes(int hd)
{
    return (size_t)(hd / 32) * (32 + 4);
}

INLINE __m256i load32(const char *p)
{
    return _mm256_loadu_si256((const void *)p);
}

/* n stored halves, a multiple of 16 -> floats */
static void halves(const uint16_t *h, int n, void *y)
{
    for (int i = 0; i < n; i += 16)
        _mm512_storeu_ps((float *)y + i, cb_halves(h + i));
}

#ifdef __AVX512VNNI__
/* Codes v of a block -> code[2][QUADS] and start[2]. A code is hi * 128 + lo. */
INLINE void split_codes(const __m512i v[2], int32_t code[2][QUADS], int32_t start[2])
{
    const __m512i round = _mm512_set1_epi32(64);
    __m512i hi[2], lo[2];

    for (int i = 0; i < 2; i++) {
        hi[i] = _mm512_srai_epi32(_mm512_add_epi32(v[i], round), 7);
        lo[i] = _mm512_sub_epi32(v[i], _mm512_slli_epi32(hi[i], 7));
        _mm_storeu_si128((void *)(code[0] + i * 4), _mm512_cvtepi32_epi8(hi[i]));
        _mm_storeu_si128((void *)(code[1] + i * 4), _mm512_cvtepi32_epi8(lo[i]));
    }
    start[0] = -128 * _mm512_reduce_add_epi32(_mm512_add_epi32(hi[0], hi[1]));
    start[1] = -128 * _mm512_reduce_add_epi32(_mm512_add_epi32(lo[0], lo[1]));
}

/* Quads of 16 keys as both parts multiply them */
INLINE void open_quads(const char *k, __m512i x[2])
{
    x[0] = x[1] = _mm512_loadu_si512(k);
}

INLINE void add_quads(__m512i *acc, __m512i x, const int32_t *q)
{
    cb_dot_u8_i8(acc, x, q);
}

INLINE __m512i join_parts(const __m512i acc[2])
{
    return _mm512_add_epi32(_mm512_slli_epi32(acc[0], 7), acc[1]);
}
#else
/* Within a quad, codes 0 and 2 as words, then 1 and 3 */
INLINE void split_codes(const __m512i v[2], int32_t code[2][QUADS], int32_t start[2])
{
    int16_t word[32];

    _mm256_storeu_si256((void *)word, _mm512_cvtepi32_epi16(v[0]));
    _mm256_storeu_si256((void *)(word + 16), _mm512_cvtepi32_epi16(v[1]));
    for (int c = 0; c < QUADS; c++) {
        const int16_t *w = word + 4 * c, part[4] = { w[0], w[2], w[1], w[3] };
        memcpy(&code[0][c], part, 4);
        memcpy(&code[1][c], part + 2, 4);
    }
    start[0] = -128 * _mm512_reduce_add_epi32(_mm512_add_epi32(v[0], v[1]));
    start[1] = 0;
}

INLINE void open_quads(const char *k, __m512i x[2])
{
    const __m512i all = _mm512_loadu_si512(k);

    x[0] = _mm512_and_si512(all, _mm512_set1_epi16(255));
    x[1] = _mm512_srli_epi16(all, 8);
}

INLINE void add_quads(__m512i *acc, __m512i x, const int32_t *q)
{
    cb_dot_i16(acc, x, _mm512_set1_epi32(*q));
}

INLINE __m512i join_parts(const __m512i acc[2])
{
    return _mm512_add_epi32(acc[0], acc[1]);
}
#endif

/* Packs row r of m */
static void pack_q_block(const float *x, float scale, int r, int m, int32_t *y)
{
    const __m512 u = _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(scale));
    const __m512 w = _mm512_mul_ps(_mm512_loadu_ps(x + 16), _mm512_set1_ps(scale));
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(u), _mm512_abs_ps(w)));
    const float d = top / STEPS;
    const __m512 inv = _mm512_set1_ps(d > 0.0f ? 1.0f / d : 0.0f);
    const __m512i v[2] = { _mm512_cvtps_epi32(_mm512_mul_ps(u, inv)),
                           _mm512_cvtps_epi32(_mm512_mul_ps(w, inv)) };
    int32_t code[2][QUADS], start[2];

    split_codes(v, code, start);
    for (int c = 0; c < QUADS; c++) {
        y[2 * c * m + r] = code[0][c];
        y[(2 * c + 1) * m + r] = code[1][c];
    }
    y[QUADS * 2 * m + r] = start[0];
    y[(QUADS * 2 + 1) * m + r] = start[1];
    memcpy(y + (QUADS * 2 + 2) * m + r, &d, sizeof d);
}

static void pack_q(const float *const *q, float scale, int rows, int mr, int hd, void *qp)
{
    int32_t *y = qp;

    for (int r0 = 0; r0 < rows; r0 += mr) {
        const int m = rows - r0 < mr ? rows - r0 : mr;
        for (int b = 0; b < hd / 32; b++, y += (QUADS * 2 + 3) * m)
            for (int r = 0; r < m; r++)
                pack_q_block(q[r0 + r] + b * 32, scale, r, m, y);
    }
}

/* Codes of 16 keys at p[] -> y[QUADS][PANEL]: an 8 x 8 transposition in both halves */
static inline void transpose_codes(const char *const *row, size_t at, char *y)
{
    const __m512i lows = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i highs = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    __m512i t[8], a[8];

    UNROLL
    for (int i = 0; i < 8; i++) {
        const __m256i lo = load32(row[i] + at), hi = load32(row[i + 8] + at);
        t[i] = _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
    }
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm512_unpacklo_epi32(t[i], t[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(t[i], t[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 8; i += 4) {
        t[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        t[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        t[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        t[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        const __m512i lo = _mm512_permutex2var_epi64(t[i], lows, t[i + 4]);
        const __m512i hi = _mm512_permutex2var_epi64(t[i], highs, t[i + 4]);
        _mm512_storeu_si512(y + i * PANEL * 4, _mm512_xor_si512(lo, sign));
        _mm512_storeu_si512(y + (i + 4) * PANEL * 4, _mm512_xor_si512(hi, sign));
    }
}

/* Block b of PANEL keys -> codes y, and the stored scales */
static void pack_block(const char *const *row, int b, char *y, uint16_t *scale)
{
    transpose_codes(row, (size_t)b * 34 + 2, y);
    transpose_codes(row + 16, (size_t)b * 34 + 2, y + 64);
    for (int i = 0; i < PANEL; i++)
        memcpy(scale + i, row[i] + b * 34, sizeof *scale);
}

static void pack_panel(const struct kern_rows *k, int j, int hd, char *y)
{
    for (int i = 0; i < PANEL; i++)
        if (j + i < k->n_ahead)
            for (size_t at = 0; at < k->bytes; at += 64)
                __builtin_prefetch(k->ahead[j + i] + at, 0, 2);
    for (int b = 0; b < hd / 32; b++, y += PANEL * 36) {
        uint16_t scale[PANEL];
        pack_block(k->row + j, b, y, scale);
        halves(scale, PANEL, y + PANEL * 32);
    }
}

static void pack_k(const struct kern_rows *k, int hd, void *kp)
{
    for (int j = 0; j < k->n; j += PANEL)
        pack_panel(k, j, hd, (char *)kp + (size_t)j * k_bytes(hd));
}

/* 16 keys of a block, with scales dk: s[m][KEY_BLOCK] = or +=. ahead: a block to prefetch, or
 * NULL */
INLINE void qk_block(int m, const int32_t *q, const char *k, __m512 dk, const char *ahead,
                     int first, float *s)
{
    __m512i acc[MAX_TILE][2];

    UNROLL
    for (int r = 0; r < m; r++) {
        acc[r][0] = _mm512_set1_epi32(q[QUADS * 2 * m + r]);
        acc[r][1] = _mm512_set1_epi32(q[(QUADS * 2 + 1) * m + r]);
    }
    UNROLL
    for (int c = 0; c < QUADS; c++) {
        __m512i x[2];
        open_quads(k + c * PANEL * 4, x);
        if (ahead)
            __builtin_prefetch(ahead + c * PANEL * 4, 0, 2);
        UNROLL
        for (int r = 0; r < m; r++) {
            add_quads(&acc[r][0], x[0], &q[2 * c * m + r]);
            add_quads(&acc[r][1], x[1], &q[(2 * c + 1) * m + r]);
        }
    }
    UNROLL
    for (int r = 0; r < m; r++) {
        const __m512i v = join_parts(acc[r]);
        __m512 dq = _mm512_castsi512_ps(_mm512_set1_epi32(q[(QUADS * 2 + 2) * m + r])), y;
        dq = _mm512_mul_ps(dq, dk);
        y = first ? _mm512_setzero_ps() : _mm512_loadu_ps(s + r * KEY_BLOCK);
        _mm512_storeu_ps(s + r * KEY_BLOCK, _mm512_fmadd_ps(_mm512_cvtepi32_ps(v), dq, y));
    }
}

/* Half a panel: the second half's codes and scales are 64 bytes further on. */
INLINE void qk_tile(int m, const char *q, const char *k, int hd, float *s)
{
    for (int b = 0; b < hd / 32; b++, q += (QUADS * 2 + 3) * 4 * m, k += PANEL * 36)
        qk_block(m, (const int32_t *)(const void *)q, k, _mm512_loadu_ps(k + PANEL * 32), NULL,
                 b == 0, s);
}

#define QK(m) qk_tile(m, q, k, hd, s)
static void qk_any(int m, const char *q, const char *k, int hd, float *s)
{
    I16_HEIGHTS(m, QK);
}

static void mul(const void *qp, int rows, int mr, const void *kp, int n, int hd, float *s)
{
    const char *q = qp, *k = kp;

    for (int j = 0; j < n; j += PANEL)
        for (int i = 0; i < PANEL; i += 16)
            for (int r = 0; r < rows; r += mr)
                qk_any(rows - r < mr ? rows - r : mr, q + (size_t)r * q_bytes(hd),
                       k + (size_t)j * k_bytes(hd) + i * 4, hd, s + r * KEY_BLOCK + j + i);
}

static void direct(const void *qp, int rows, const struct kern_rows *k, int hd, float *s)
{
    _Alignas(64) char panel[PANEL * (MAX_HD + MAX_HD / 8)];

    for (int j = 0; j < k->n; j += PANEL) {
        pack_panel(k, j, hd, panel);
        mul(qp, rows, rows, panel, PANEL, hd, s + j);
    }
}

const struct kern_qk DOT_NAME(cb_qk_q8_) = { q_bytes, k_bytes, pack_q, pack_k, mul, direct };

/* ---- values ---- */

/* Codes of 32 dims of two keys as pairs */
struct pairs {
    __m256i lo, hi; /* of dims 0-15, 16-31 */
};

INLINE struct pairs pair_codes(__m256i u, __m256i w)
{
    u = _mm256_permute4x64_epi64(u, 0xd8); /* so that unpacking gives dims 0-15, then 16-31 */
    w = _mm256_permute4x64_epi64(w, 0xd8);
    return (struct pairs){ _mm256_unpacklo_epi8(u, w), _mm256_unpackhi_epi8(u, w) };
}

static void pack_v_q8(const struct kern_rows *v, int hd, int at, void *vp)
{
    const __m256i zero = _mm256_setzero_si256();
    struct i16_values *y = vp;

    for (int j = 0; j < v->n; j++)
        if (j < v->n_ahead)
            for (size_t i = 0; i < v->bytes; i += 64)
                __builtin_prefetch(v->ahead[j] + i, 0, 2);
    for (int b = 0; b < hd / 32; b++, y++) {
        int16_t *code = y->code + 32 * at;
        uint16_t scale[KEY_BLOCK] = { 0 };
        for (int j = 0; j < v->n; j += 2, code += 64) {
            const char *p = v->row[j] + b * 34, *q = v->row[j + 1] + b * 34;
            const struct pairs x = pair_codes(load32(p + 2), j + 1 < v->n ? load32(q + 2) : zero);
            _mm512_storeu_si512(code, _mm512_cvtepi8_epi16(x.lo));
            _mm512_storeu_si512(code + 32, _mm512_cvtepi8_epi16(x.hi));
            memcpy(scale + j, p, sizeof *scale);
            if (j + 1 < v->n)
                memcpy(scale + j + 1, q, sizeof *scale);
        }
        halves(scale, (v->n + 15) / 16 * 16, y->scale + at);
    }
}

/* Values of any type that is multiplied as integers */
void DOT_NAME(cb_pack_v_i16_)(const struct kern_rows *v, int hd, int at, void *vp)
{
    if (v->t == KV_Q8_0)
        pack_v_q8(v, hd, at, vp);
    else
        DOT_NAME(cb_pack_v_half_)(v, hd, at, vp);
}

/* ---- prepacked blocks ---- */

/* A block of 32 dims of a prepacked panel: the codes of a packed block, and the stored scales. */
struct prepacked_keys {
    uint8_t code[QUADS][PANEL][4];
    uint16_t scale[PANEL];
};

static void prepack_keys(const struct kern_rows *k, int hd, void *codes, float *step)
{
    struct prepacked_keys *y = codes;

    (void)step;
    for (int j = 0; j < KEY_BLOCK; j += PANEL)
        for (int b = 0; b < hd / 32; b++, y++)
            pack_block(k->row + j, b, (char *)y->code, y->scale);
}

static void put_key(enum kv_type t, const void *row, int hd, int j, void *codes, float *step)
{
    struct prepacked_keys *y = (struct prepacked_keys *)codes + j / PANEL * (hd / 32);
    const uint8_t *x = row;

    (void)t, (void)step;
    for (int b = 0; b < hd / 32; b++, y++, x += 34) {
        memcpy(y->scale + j % PANEL, x, 2);
        for (int c = 0; c < 32; c++)
            y->code[c / 4][j % PANEL][c % 4] = x[2 + c] ^ 0x80;
    }
}

static void open_key(enum kv_type t, const void *codes, const float *step, int hd, int j, void *row)
{
    const struct prepacked_keys *x = (const struct prepacked_keys *)codes + j / PANEL * (hd / 32);
    uint8_t *y = row;

    (void)t, (void)step;
    for (int b = 0; b < hd / 32; b++, x++, y += 34) {
        memcpy(y, x->scale + j % PANEL, 2);
        for (int c = 0; c < 32; c++)
            y[2 + c] = x->code[c / 4][j % PANEL][c % 4] ^ 0x80;
    }
}

static void prepack_values(const struct kern_rows *v, int hd, void *codes, float *step)
{
    struct i8_values *y = codes;

    (void)step;
    for (int b = 0; b < hd / 32; b++, y++)
        for (int j = 0; j < KEY_BLOCK; j += 2) {
            const char *p = v->row[j] + b * 34, *q = v->row[j + 1] + b * 34;
            const struct pairs x = pair_codes(load32(p + 2), load32(q + 2));
            _mm256_storeu_si256((void *)(y->code + 32 * j), x.lo);
            _mm256_storeu_si256((void *)(y->code + 32 * j + 32), x.hi);
            memcpy(y->scale + j, p, sizeof *y->scale);
            memcpy(y->scale + j + 1, q, sizeof *y->scale);
        }
}

static void put_value(enum kv_type t, const void *row, int hd, int j, void *codes, float *step)
{
    struct i8_values *y = codes;
    const int8_t *x = row;

    (void)t, (void)step;
    for (int b = 0; b < hd / 32; b++, y++, x += 34) {
        memcpy(y->scale + j, x, 2);
        for (int c = 0; c < 32; c++)
            y->code[32 * (j & ~1) + 2 * c + j % 2] = x[2 + c];
    }
}

static void open_value(enum kv_type t, const void *codes, const float *step, int hd, int j,
                       void *row)
{
    const struct i8_values *x = codes;
    int8_t *y = row;

    (void)t, (void)step;
    for (int b = 0; b < hd / 32; b++, x++, y += 34) {
        memcpy(y, x->scale + j, 2);
        for (int c = 0; c < 32; c++)
            y[2 + c] = x->code[32 * (j & ~1) + 2 * c + j % 2];
    }
}

/* The 16 keys of a panel from `half`, 0 or 16, on; ahead: as many blocks to prefetch */
INLINE void prepacked_tile(int m, const char *q, const struct prepacked_keys *k,
                           const struct prepacked_keys *ahead, int half, int hd, float *s)
{
    for (int b = 0; b < hd / 32; b++, q += (QUADS * 2 + 3) * 4 * m, k++, ahead++) {
        __builtin_prefetch(ahead->scale, 0, 2);
        qk_block(m, (const int32_t *)(const void *)q, (const char *)k->code[0][half],
                 cb_halves(k->scale + half), (const char *)ahead->code[0][half], b == 0, s);
    }
}

#define SEALED(m) prepacked_tile(m, q, k, ahead, half, hd, s)
static void prepacked_any(int m, const char *q, const struct prepacked_keys *k,
                          const struct prepacked_keys *ahead, int half, int hd, float *s)
{
    I16_HEIGHTS(m, SEALED);
}

static void mul_prepacked(const void *qp, int rows, int mr, const void *codes, const float *step,
                          const void *ahead, int hd, float *s)
{
    const struct prepacked_keys *k = codes, *next = ahead ? ahead : codes;
    const char *q = qp;

    (void)step;
    for (int j = 0; j < KEY_BLOCK; j += PANEL, k += hd / 32, next += hd / 32)
        for (int i = 0; i < PANEL; i += 16)
            for (int r = 0; r < rows; r += mr)
                prepacked_any(rows - r < mr ? rows - r : mr, q + (size_t)r * q_bytes(hd), k,
                              r ? k : next, i, hd, s + r * KEY_BLOCK + j + i);
}

const struct kern_prepack DOT_NAME(cb_prepack_q8_) = {
    prepack_keys, prepack_values, put_key,       put_value,
    open_key,     open_value,     mul_prepacked, DOT_NAME(cb_pv_prepacked_q8_)
};
