/* SPDX-License-Identifier: MIT */
/* attn_half.c - logits and weighted sums of f16 and bf16 rows with 16-bit integer products, twice
 * as many an instruction as in f32. A row's codes have 13 bits and a sign, relative to its largest
 * element. A query's codes are bounded by their sum, so that no logit can exceed 2^31. The rounding
 * error is no larger than that of f16 itself (heads of up to 128), even where a few dimensions are
 * far larger than the rest. Built once for each ISA that has such products; attn_half_ISA.h holds
 * the differences. */
#include "attn_i16.h"
#include "cpu/vector/vec.h"
#include "cpu/vector/vec_rows.h"

#define UNROLL _Pragma("GCC unroll 16")

enum { QUERY_SUM = 240000 };

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

static void prefetch(const struct kern_rows *x, int from, int n)
{
    for (int i = from; i < from + n && i < x->n_ahead; i++)
        for (size_t at = 0; at < x->bytes; at += 64)
            __builtin_prefetch(x->ahead[i] + at, 0, 2);
}

/* The header defines PANEL (keys a panel), quantize(), row_steps(), pack_panel(), qk_tile() and
 * pack_rows() */
#define HALF_FILE_(isa) attn_half_##isa.h
#define HALF_FILE(isa)  HALF_FILE_(isa)
#include VEC_STR(HALF_FILE(VEC_ISA))

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

static void pack_panel_any(const struct kern_rows *k, int j, int hd, char *y, float *step)
{
    if (k->t == KV_F16)
        pack_panel(KV_F16, k, j, hd, y, step);
    else
        pack_panel(KV_BF16, k, j, hd, y, step);
}

/* The steps of a packed panel, which follow its pairs */
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

/* The first panel's pairs and steps, and the distances to the next panel's. ahead: what to
 * prefetch. */
struct panels {
    const char *pair, *ahead;
    const float *step;
    size_t next, next_step;
};

#define QK(m) qk_tile(m <= MR ? m : 1, q, k, step, ahead, hd, s)
static void qk_any(int m, const char *q, const char *k, const float *step, const char *ahead,
                   int hd, float *s)
{
    I16_HEIGHTS(m, QK);
}

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

/* The panel stays in L1. */
static void direct(const void *qp, int rows, const struct kern_rows *k, int hd, float *s)
{
    _Alignas(64) char panel[PANEL * (2 * MAX_HD + 4)];

    for (int j = 0; j < k->n; j += PANEL) {
        pack_panel_any(k, j, hd, panel, steps_of(panel, hd));
        mul(qp, rows, rows, panel, PANEL, hd, s + j);
    }
}

const struct kern_qk DOT_NAME(cb_qk_half_) = { row_bytes, row_bytes, pack_q, pack_k, mul, direct };

/* ---- values ---- */

/* Packs entries from `at` on into code[hd / 32], whose elements are `stride` numbers apart */
VEC_INLINE void pack_values(enum kv_type t, const struct kern_rows *v, int hd, int at,
                            int16_t *code, size_t stride, float *step)
{
    for (int j = 0; j < v->n; j += 16) {
        float inv[16];
        prefetch(v, j, 16);
        row_steps(t, v->row + j, hd, step + at + j, inv);
        for (int b = 0; b < hd / 32; b++) /* past the last row: any row, with weight 0 */
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

void DOT_NAME(cb_pack_v_half_)(const struct kern_rows *v, int hd, int at, void *vp)
{
    struct i16_values *y = vp;
    pack_values_any(v, hd, at, y->code, sizeof *y / sizeof *y->code, y->scale);
}

/* ---- prepacked blocks ---- */

static void prepack_keys(const struct kern_rows *k, int hd, void *codes, float *step)
{
    for (int j = 0; j < KEY_BLOCK; j += PANEL)
        pack_panel_any(k, j, hd, (char *)codes + 2 * j * hd, step + j);
}

static void prepack_values(const struct kern_rows *v, int hd, void *codes, float *step)
{
    pack_values_any(v, hd, 0, codes, 32 * KEY_BLOCK, step);
}

static void mul_prepacked(const void *qp, int rows, int mr, const void *codes, const float *step,
                          const void *ahead, int hd, float *s)
{
    const struct panels k = { codes, ahead ? ahead : codes, step, 2 * PANEL * (size_t)hd, PANEL };
    mul_panels(qp, rows, mr, k, KEY_BLOCK, hd, s);
}

/* Packs PANEL or 16 copies of the one row, since the packing functions take that many. */
static void put_key(enum kv_type t, const void *row, int hd, int j, void *codes, float *step)
{
    _Alignas(64) char panel[PANEL * 2 * MAX_HD];
    char *y = (char *)codes + (size_t)(j / PANEL * PANEL) * 2 * (size_t)hd;
    const char *at[PANEL];
    float steps[PANEL];

    for (int i = 0; i < PANEL; i++)
        at[i] = row;
    pack_panel_any(&(const struct kern_rows){ .t = t, .n = PANEL, .row = at }, 0, hd, panel, steps);
    for (int c = 0; c < hd / 2; c++)
        memcpy(y + (c * PANEL + j % PANEL) * 4, panel + c * PANEL * 4, 4);
    step[j] = steps[0];
}

static void put_value(enum kv_type t, const void *row, int hd, int j, void *codes, float *step)
{
    _Alignas(64) int16_t rows[16 * MAX_HD];
    int16_t *y = codes;
    const char *at[16];
    float steps[16];

    for (int i = 0; i < 16; i++)
        at[i] = row;
    pack_values_any(&(const struct kern_rows){ .t = t, .n = 16, .row = at }, hd, 0, rows, 32 * 16,
                    steps);
    for (int c = 0; c < hd; c++)
        y[c / 32 * 32 * KEY_BLOCK + j / 2 * 64 + c % 32 * 2 + j % 2] =
            rows[c / 32 * 32 * 16 + c % 32 * 2];
    step[j] = steps[0];
}

/* Within 32 dims from c on, pair p of a panel holds dims c + p and c + 16 + p of its keys. */
static void open_key(enum kv_type t, const void *codes, const float *step, int hd, int j, void *row)
{
    const int16_t *panel = (const int16_t *)codes + j / PANEL * PANEL * hd;
    float x[MAX_HD];

    for (int c = 0; c < hd; c++) {
        const int pair = c / 32 * 16 + c % 16;
        x[c] = step[j] * panel[(pair * PANEL + j % PANEL) * 2 + c % 32 / 16];
    }
    VEC_NAME(cb_encode_row_)(t, x, hd, row);
}

static void open_value(enum kv_type t, const void *codes, const float *step, int hd, int j,
                       void *row)
{
    const int16_t *y = codes;
    float x[MAX_HD];

    for (int c = 0; c < hd; c++)
        x[c] = step[j] * y[c / 32 * 32 * KEY_BLOCK + j / 2 * 64 + c % 32 * 2 + j % 2];
    VEC_NAME(cb_encode_row_)(t, x, hd, row);
}

const struct kern_prepack DOT_NAME(cb_prepack_half_) = {
    prepack_keys, prepack_values, put_key,       put_value,
    open_key,     open_value,     mul_prepacked, DOT_NAME(cb_pv_prepacked_half_)
};
