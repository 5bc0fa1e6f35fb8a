/* SPDX-License-Identifier: MIT */
/* attn_half_avx2.c - logits of f16 and bf16 keys as products of 16-bit integers, twice as many an
 * instruction as f32; the codes of attn_half_avx512.c, whose bounds keep every sum below 2^31. Panels are
 * of 16 keys: with six rows of queries their sums take 12 of the 16 registers. */
#include <math.h>

#include "attn_i16.h"
#include "vec.h"

#define UNROLL _Pragma("GCC unroll 16")

enum { PANEL = 16, QUERY_SUM = 240000 };

/* A packed query tile of m rows: int16 pair[pairs][m][2], float scale[m].
 * A packed panel of keys: int16 pair[pairs][PANEL][2], float scale[PANEL]. */
VEC_INLINE int pairs(int hd)
{
    return (hd + 31) / 32 * 16;
}

static size_t row_bytes(int hd)
{
    return (size_t)pairs(hd) * 4 + 4;
}

/* elements [c, c + 8) of x[n] or, behind it, zeros */
VEC_INLINE vf part(const float *x, int c, int n)
{
    return c < n ? v_load(x + c) : v_set1(0.0f);
}

/* x[n] -> pairs of codes; what a step of them is worth */
static float quantize(const float *x, int n, int32_t *y)
{
    vf sums = v_set1(0.0f), tops = sums, inv;
    float sum, top, f;

    for (int c = 0; c < n; c += VW) {
        const vf u = v_abs(v_load(x + c));
        sums = v_add(sums, u);
        tops = v_max(tops, u);
    }
    sum = v_hsum(sums);
    top = v_hmax(tops);
    f = top > 0 ? fminf(32767 / top, QUERY_SUM / sum) : 1;
    inv = v_set1(f);
    for (int c = 0; c < n; c += 32)
        for (int i = c; i < c + 16; i += VW, y += VW)
            _mm256_storeu_si256((void *)y, cb_i16_pair(cb_i16_code(part(x, i, n), inv),
                                                       cb_i16_code(part(x, i + 16, n), inv)));
    return 1 / f;
}

static void pack_q(const float *const *q, float scale, int rows, int mr, int hd, void *qp)
{
    char *y = qp;
    int32_t pair[MAX_HD / 2];

    for (int r0 = 0; r0 < rows; r0 += mr) {
        const int m = rows - r0 < mr ? rows - r0 : mr;
        for (int r = 0; r < m; r++) {
            const float d = scale * quantize(q[r0 + r], hd, pair);
            for (int c = 0; c < pairs(hd); c++)
                memcpy(y + (c * m + r) * 4, pair + c, 4);
            memcpy(y + (pairs(hd) * m + r) * 4, &d, sizeof d);
        }
        y += (size_t)m * row_bytes(hd);
    }
}

/* ---- stored rows to codes ---- */

/* 8 stored numbers from c on, or none */
VEC_INLINE vf floats(enum kv_type t, const char *row, int c, int hd)
{
    if (c >= hd)
        return v_set1(0.0f);
    return t == KV_F16 ? v_load_f16(row + 2 * c) : v_load_bf16(row + 2 * c);
}

/* The largest magnitude of a row, as stored: halves without their signs order like whole numbers. The
 * instruction finds the smallest of eight, so of what is left to the largest number there is. */
VEC_INLINE uint16_t row_top(const char *row, int hd)
{
    __m256i top = _mm256_setzero_si256();
    __m128i most;

    for (int c = 0; c < hd; c += 16) {
        const __m256i x = _mm256_loadu_si256((const void *)(row + 2 * c));
        top = _mm256_max_epu16(top, _mm256_slli_epi16(x, 1));
    }
    most = _mm_max_epu16(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    most = _mm_minpos_epu16(_mm_xor_si128(most, _mm_set1_epi32(-1)));
    return (uint16_t)((uint16_t)~_mm_cvtsi128_si32(most) >> 1);
}

/* What a step of each of 16 rows is worth if its largest magnitude gets the largest code, and the
 * inverse. A row depends on no other one. One with a number that is not finite gets NaN. */
VEC_INLINE void row_steps(enum kv_type t, const char *const *row, int hd, float *step, float *inv)
{
    uint16_t top[PANEL];

    UNROLL
    for (int i = 0; i < PANEL; i++)
        top[i] = row_top(row[i], hd);
    for (int i = 0; i < PANEL; i += VW) {
        const vf d = t == KV_F16 ? v_load_f16(top + i) : v_load_bf16(top + i);
        const vf s = v_mul(d, v_set1(1.0f / I16_ROW_TOP));
        const vf bad = _mm256_cmp_ps(d, v_set1(INFINITY), _CMP_NLT_UQ);
        const vf some = _mm256_cmp_ps(d, v_set1(0.0f), _CMP_GT_OQ);
        v_store(step + i, _mm256_blendv_ps(s, v_set1(NAN), bad));
        v_store(inv + i, _mm256_and_ps(_mm256_andnot_ps(bad, some), v_div(v_set1(1.0f), s)));
    }
}

static void ask_ahead(const struct kern_rows *x, int from, int n)
{
    for (int i = from; i < from + n && i < x->n_ahead; i++)
        for (size_t at = 0; at < x->bytes; at += 64)
            __builtin_prefetch(x->ahead[i] + at, 0, 2);
}

/* 8 keys -> pair[pairs][0..7] of a panel */
VEC_INLINE void pack_keys(enum kv_type t, const char *const *row, int hd, const float *inv, char *y)
{
    for (int c = 0; c < hd; c += 32)
        for (int h = c; h < c + 16; h += VW, y += VW * PANEL * 4) {
            vf v[VW];
            UNROLL
            for (int i = 0; i < VW; i++) {
                const vf f = v_set1(inv[i]);
                v[i] =
                    _mm256_castsi256_ps(cb_i16_pair(cb_i16_code(floats(t, row[i], h, hd), f),
                                                    cb_i16_code(floats(t, row[i], h + 16, hd), f)));
            }
            v_transpose(v);
            UNROLL
            for (int i = 0; i < VW; i++)
                _mm256_storeu_ps((float *)(void *)(y + i * PANEL * 4), v[i]);
        }
}

/* Keys [j, j + PANEL) -> a panel's pairs y, and step[PANEL] */
VEC_INLINE void pack_panel(enum kv_type t, const struct kern_rows *k, int j, int hd, char *y,
                           float *step)
{
    float inv[PANEL];

    ask_ahead(k, j, PANEL);
    row_steps(t, k->row + j, hd, step, inv);
    for (int i = 0; i < PANEL; i += VW)
        pack_keys(t, k->row + j + i, hd, inv + i, y + 4 * i);
}

static void pack_panel_any(const struct kern_rows *k, int j, int hd, char *y, float *step)
{
    if (k->t == KV_F16)
        pack_panel(KV_F16, k, j, hd, y, step);
    else
        pack_panel(KV_BF16, k, j, hd, y, step);
}

/* Where the steps of a packed panel are: behind its pairs */
static float *steps_of(const char *panel, int hd)
{
    return (float *)(uintptr_t)(panel + pairs(hd) * PANEL * 4);
}

static void pack_k(const struct kern_rows *k, int hd, void *kp)
{
    for (int j = 0; j < k->n; j += PANEL) {
        char *panel = (char *)kp + (size_t)j * row_bytes(hd);
        pack_panel_any(k, j, hd, panel, steps_of(panel, hd));
    }
}

/* ---- logits ---- */

/* ahead: as many bytes as the panel has, which are read next */
VEC_INLINE void qk_tile(int m, const char *q, const char *k, const float *step, const char *ahead,
                        int hd, float *s)
{
    __m256i acc[MR][2];

    UNROLL
    for (int r = 0; r < m; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    _Pragma("GCC unroll 4") for (int c = 0; c < pairs(hd);
                                 c++, q += 4 * m, k += PANEL * 4, ahead += PANEL * 4)
    {
        const __m256i x = _mm256_loadu_si256((const void *)k);
        const __m256i y = _mm256_loadu_si256((const void *)(k + 32));
        __builtin_prefetch(ahead, 0, 2);
        UNROLL
        for (int r = 0; r < m; r++)
            cb_i16_add(acc[r], x, y, q + 4 * r);
    }
    UNROLL
    for (int r = 0; r < m; r++) {
        float d;
        memcpy(&d, q + 4 * r, sizeof d);
        UNROLL
        for (int i = 0; i < 2; i++)
            v_store(s + r * KEY_BLOCK + i * VW,
                    v_mul(_mm256_cvtepi32_ps(acc[r][i]), v_mul(v_load(step + i * VW), v_set1(d))));
    }
}

#define QK(m) qk_tile(m <= MR ? m : 1, q, k, step, ahead, hd, s)
static void qk_any(int m, const char *q, const char *k, const float *step, const char *ahead,
                   int hd, float *s)
{
    I16_HEIGHTS(m, QK);
}

/* Panels: the first one's pairs and steps, and how far the next one's are. ahead: what is read next. */
struct panels {
    const char *pair, *ahead;
    const float *step;
    size_t next, next_step;
};

static void mul_panels(const void *qp, int rows, int mr, struct panels k, int n, int hd, float *s)
{
    const char *q = qp;

    for (int j = 0; j < n; j += PANEL) {
        for (int r = 0; r < rows; r += mr)
            qk_any(rows - r < mr ? rows - r : mr, q + (size_t)r * row_bytes(hd), k.pair, k.step,
                   r ? k.pair : k.ahead, hd, s + r * KEY_BLOCK + j);
        k.pair += k.next;
        k.ahead += k.next;
        k.step += k.next_step;
    }
}

static void mul(const void *qp, int rows, int mr, const void *kp, int n, int hd, float *s)
{
    const size_t bytes = PANEL * row_bytes(hd);
    const struct panels k = { kp, kp, steps_of(kp, hd), bytes, bytes / sizeof(float) };
    mul_panels(qp, rows, mr, k, n, hd, s);
}

/* The panel stays in the nearest cache. */
static void direct(const void *qp, int rows, const struct kern_rows *k, int hd, float *s)
{
    _Alignas(64) char panel[PANEL * (2 * MAX_HD + 4)];

    for (int j = 0; j < k->n; j += PANEL) {
        pack_panel_any(k, j, hd, panel, steps_of(panel, hd));
        mul(qp, rows, rows, panel, PANEL, hd, s + j);
    }
}

const struct kern_qk cb_qk_half_avx2 = { row_bytes, row_bytes, pack_q, pack_k, mul, direct };

/* ---- values ---- */

/* 32 dims from c on of 16 rows -> pairs of rows */
VEC_INLINE void pack_rows(enum kv_type t, const char *const *row, int c, const float *inv,
                          int16_t *y)
{
    UNROLL
    for (int i = 0; i < 16; i += 2, y += 64) {
        const vf f = v_set1(inv[i]), g = v_set1(inv[i + 1]);
        UNROLL
        for (int d = 0; d < 32; d += VW)
            _mm256_storeu_si256((void *)(y + 2 * d),
                                cb_i16_pair(cb_i16_code(floats(t, row[i], c + d, c + 32), f),
                                            cb_i16_code(floats(t, row[i + 1], c + d, c + 32), g)));
    }
}

/* Entries from `at` on of code[hd / 32], which are `stride` numbers apart */
VEC_INLINE void pack_values(enum kv_type t, const struct kern_rows *v, int hd, int at,
                            int16_t *code, size_t stride, float *step)
{
    for (int j = 0; j < v->n; j += 16) {
        float inv[16];
        ask_ahead(v, j, 16);
        row_steps(t, v->row + j, hd, step + at + j, inv);
        for (int b = 0; b < hd / 32; b++) /* behind the last row: any, with probability 0 */
            pack_rows(t, v->row + j, 32 * b, inv, code + (size_t)b * stride + 32 * (at + j));
    }
}

static void pack_values_any(const struct kern_rows *v, int hd, int at, int16_t *code, size_t stride,
                            float *step)
{
    if (v->t == KV_F16)
        pack_values(KV_F16, v, hd, at, code, stride, step);
    else
        pack_values(KV_BF16, v, hd, at, code, stride, step);
}

void cb_pack_v_half_avx2(const struct kern_rows *v, int hd, int at, void *vp)
{
    struct i16_values *y = vp;
    pack_values_any(v, hd, at, y->code, sizeof *y / sizeof *y->code, y->scale);
}

/* ---- sealed blocks ---- */

static void seal_keys(const struct kern_rows *k, int hd, void *codes, float *step)
{
    for (int j = 0; j < KEY_BLOCK; j += PANEL)
        pack_panel_any(k, j, hd, (char *)codes + 2 * j * hd, step + j);
}

static void seal_values(const struct kern_rows *v, int hd, void *codes, float *step)
{
    pack_values_any(v, hd, 0, codes, 32 * KEY_BLOCK, step);
}

static void mul_sealed(const void *qp, int rows, int mr, const void *codes, const float *step,
                       const void *ahead, int hd, float *s)
{
    const struct panels k = { codes, ahead ? ahead : codes, step, 2 * PANEL * (size_t)hd, PANEL };
    mul_panels(qp, rows, mr, k, KEY_BLOCK, hd, s);
}

/* Of 32 dims from c on: pair p of a panel is dims c + p and c + 16 + p of its keys. */
static void open_key(enum kv_type t, const void *codes, const float *step, int hd, int j, void *row)
{
    const int16_t *panel = (const int16_t *)codes + j / PANEL * PANEL * hd;
    float x[MAX_HD];

    for (int c = 0; c < hd; c++) {
        const int pair = c / 32 * 16 + c % 16;
        x[c] = step[j] * panel[(pair * PANEL + j % PANEL) * 2 + c % 32 / 16];
    }
    cb_vec_avx2.encode(t, x, hd, row);
}

static void open_value(enum kv_type t, const void *codes, const float *step, int hd, int j,
                       void *row)
{
    const int16_t *y = codes;
    float x[MAX_HD];

    for (int c = 0; c < hd; c++)
        x[c] = step[j] * y[c / 32 * 32 * KEY_BLOCK + j / 2 * 64 + c % 32 * 2 + j % 2];
    cb_vec_avx2.encode(t, x, hd, row);
}

const struct kern_seal cb_seal_half_avx2 = { seal_keys,  seal_values, open_key,
                                             open_value, mul_sealed,  cb_pv_sealed_half_avx2 };
