/* SPDX-License-Identifier: MIT */
/* attn_half_avx512.c - logits of prompts with 16-bit products, twice as many an instruction as f32.
 * Queries and keys become int16, each row scaled by its own norm, so that no sum can pass 2^30
 * (Cauchy-Schwarz). A logit is then off by about 1e-5 |q||k|: no more than f16 keys are to begin with,
 * also where a few dimensions are far larger than the rest. */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "attn_half.h"
#include "vec.h"

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

enum { PANEL = 32, FULL = 32767 };

/* A packed query tile of m rows: int16 pair[hd / 2][m][2], float scale[m].
 * A packed panel of keys: int16 pair[hd / 2][PANEL][2], float scale[PANEL]. */
static size_t row_bytes(int hd)
{
    return (size_t)hd * 2 + 4;
}

/* x[n] -> codes, and what a step of them is worth */
static float quantize(const float *x, int n, int16_t *y)
{
    float sum = 0, d, inv;

    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    d = sqrtf(sum) / FULL;
    inv = d > 0 ? 1 / d : 0;
    for (int i = 0; i < n; i++)
        y[i] = (int16_t)lrintf(x[i] * inv);
    return d;
}

static void pack_q(const float *const *q, float scale, int rows, int mr, int hd, void *qp)
{
    char *y = qp;
    int16_t code[MAX_HD];

    for (int r0 = 0; r0 < rows; r0 += mr) {
        const int m = rows - r0 < mr ? rows - r0 : mr;
        for (int r = 0; r < m; r++) {
            const float d = scale * quantize(q[r0 + r], hd, code);
            for (int c = 0; c < hd / 2; c++)
                memcpy(y + (c * m + r) * 4, code + 2 * c, 4);
            memcpy(y + (hd / 2 * m + r) * 4, &d, sizeof d);
        }
        y += (size_t)m * row_bytes(hd);
    }
}

/* A stored row as floats, hd a multiple of 16 */
INLINE void floats(enum kv_type t, const char *row, int hd, float *x)
{
    for (int c = 0; c < hd; c += 16)
        v_store(x + c, t == KV_F16 ? v_load_f16(row + 2 * c) : v_load_bf16(row + 2 * c));
}

/* 16 keys -> pair[hd / 2][0..15] of a panel, scale[0..15] */
INLINE void pack_keys(enum kv_type t, const char *const *row, int hd, char *y, char *scale)
{
    _Alignas(64) int16_t code[16][MAX_HD];
    float x[MAX_HD];
    vf v[16];

    for (int i = 0; i < 16; i++) {
        __m512 sum = _mm512_setzero_ps(), inv;
        float d;
        floats(t, row[i], hd, x);
        for (int c = 0; c < hd; c += 16)
            sum = _mm512_fmadd_ps(_mm512_loadu_ps(x + c), _mm512_loadu_ps(x + c), sum);
        d = sqrtf(_mm512_reduce_add_ps(sum)) / FULL;
        memcpy(scale + 4 * i, &d, sizeof d);
        inv = _mm512_set1_ps(d > 0 ? 1 / d : 0);
        for (int c = 0; c < hd; c += 16)
            _mm256_storeu_si256((void *)(code[i] + c),
                                _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(
                                    _mm512_mul_ps(_mm512_loadu_ps(x + c), inv))));
    }
    for (int c = 0; c < hd; c += 32) {
        const int n = hd - c < 32 ? 8 : 16; /* pairs */
        UNROLL
        for (int i = 0; i < 16; i++)
            v[i] = _mm512_loadu_ps(code[i] + c);
        v_transpose(v);
        for (int i = 0; i < n; i++)
            _mm512_storeu_ps(y + (c / 2 + i) * PANEL * 4, v[i]);
    }
}

static void pack_k(const struct kern_rows *k, int hd, void *kp)
{
    char *y = kp;

    for (int j = 0; j < k->n; j += PANEL, y += PANEL * row_bytes(hd))
        for (int i = 0; i < PANEL; i += 16) {
            if (k->t == KV_F16)
                pack_keys(KV_F16, k->row + j + i, hd, y + i * 4, y + (hd / 2 * PANEL + i) * 4);
            else
                pack_keys(KV_BF16, k->row + j + i, hd, y + i * 4, y + (hd / 2 * PANEL + i) * 4);
        }
}

INLINE void qk_tile(int m, const char *q, const char *k, int hd, float *s)
{
    __m512i acc[MAX_TILE][2];
    __m512 dk[2];

    UNROLL
    for (int r = 0; r < m; r++)
        acc[r][0] = acc[r][1] = _mm512_setzero_si512();
    _Pragma("GCC unroll 16") /* or the compiler copies every sum */
    for (int c = 0; c < hd / 2; c++, q += 4 * m, k += PANEL * 4) {
        const __m512i x = _mm512_loadu_si512(k), y = _mm512_loadu_si512(k + 64);
        UNROLL
        for (int r = 0; r < m; r++) {
            int32_t pair;
            memcpy(&pair, q + 4 * r, sizeof pair);
            acc[r][0] = _mm512_dpwssd_epi32(acc[r][0], x, _mm512_set1_epi32(pair));
            acc[r][1] = _mm512_dpwssd_epi32(acc[r][1], y, _mm512_set1_epi32(pair));
        }
    }
    dk[0] = _mm512_loadu_ps(k);
    dk[1] = _mm512_loadu_ps(k + 64);
    UNROLL
    for (int r = 0; r < m; r++) {
        float d;
        memcpy(&d, q + 4 * r, sizeof d);
        UNROLL
        for (int i = 0; i < 2; i++)
            _mm512_storeu_ps(s + r * KEY_BLOCK + i * 16,
                             _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][i]),
                                           _mm512_mul_ps(dk[i], _mm512_set1_ps(d))));
    }
}

/* A row count known when compiling for each height of a tile. */
#define HEIGHT(i, CALL)                                                                            \
    case i:                                                                                        \
        CALL(i);                                                                                   \
        break;
#define HEIGHTS(m, CALL)                                                                           \
    switch (m) {                                                                                   \
        HEIGHT(1, CALL)                                                                            \
        HEIGHT(2, CALL)                                                                            \
        HEIGHT(3, CALL)                                                                            \
        HEIGHT(4, CALL)                                                                            \
        HEIGHT(5, CALL)                                                                            \
        HEIGHT(6, CALL)                                                                            \
        HEIGHT(7, CALL)                                                                            \
        HEIGHT(8, CALL)                                                                            \
        HEIGHT(9, CALL)                                                                            \
        HEIGHT(10, CALL)                                                                           \
        HEIGHT(11, CALL)                                                                           \
        HEIGHT(12, CALL)                                                                           \
    default:                                                                                       \
        break;                                                                                     \
    }

#define QK(m) qk_tile(m, q, k, hd, s)
static void qk_any(int m, const char *q, const char *k, int hd, float *s)
{
    HEIGHTS(m, QK);
}

static void mul(const void *qp, int rows, int mr, const void *kp, int n, int hd, float *s)
{
    const char *q = qp, *k = kp;

    for (int j = 0; j < n; j += PANEL)
        for (int r = 0; r < rows; r += mr)
            qk_any(rows - r < mr ? rows - r : mr, q + (size_t)r * row_bytes(hd),
                   k + (size_t)j * row_bytes(hd), hd, s + r * KEY_BLOCK + j);
}

static void direct(const void *qp, int rows, const struct kern_rows *k, int hd, float *s)
{
    _Alignas(64) char panel[PANEL * (2 * MAX_HD + 4)];
    struct kern_rows some = *k;

    for (int j = 0; j < k->n; j += PANEL) {
        some.row = k->row + j;
        some.n = PANEL;
        pack_k(&some, hd, panel);
        mul(qp, rows, rows, panel, PANEL, hd, s + j);
    }
}

const struct kern_qk cb_qk_half_avx512 = { row_bytes, row_bytes, pack_q, pack_k, mul, direct };
