/* SPDX-License-Identifier: MIT */
/* attn_kivi_avx512.c - blocks of 32 numbers on 2 or 4 bits -> the integers that attention
 * multiplies. The integer of each code is computed once a block, then looked up. */
#include <immintrin.h>
#include <string.h>

#include "attn_i16.h"

#define INLINE static inline __attribute__((always_inline))

/* Blocks' steps and minima, scaled so that code * a + b is the integer */
struct form {
    float a[CB_KIVI_MAX_HD], b[CB_KIVI_MAX_HD];
};

/* Heads of 16 blocks -> f->a, f->b at i; returns the largest magnitude of each block */
INLINE __m512 open_blocks(int bits, const uint32_t *head, int i, struct form *f)
{
    __m512 step, min, max;

    cb_kivi_heads(_mm512_loadu_si512(head), &step, &min);
    max = _mm512_fmadd_ps(step, _mm512_set1_ps((float)((1 << bits) - 1)), min);
    _mm512_storeu_ps(f->a + i, step);
    _mm512_storeu_ps(f->b + i, min);
    return _mm512_max_ps(_mm512_abs_ps(min), _mm512_abs_ps(max));
}

INLINE void scale_form(struct form *f, int i, __m512 inv)
{
    _mm512_storeu_ps(f->a + i, _mm512_mul_ps(_mm512_loadu_ps(f->a + i), inv));
    _mm512_storeu_ps(f->b + i, _mm512_mul_ps(_mm512_loadu_ps(f->b + i), inv));
}

/* The 32 numbers of a block as integers in the low halves: numbers 0..15 -> y[0], 16..31 -> y[1] */
INLINE void look_up(int bits, const uint8_t *code, float a, float b, __m512i *y)
{
    const __m512 iota = bits == 4
                            ? _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
                            : _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
    const __m512 x = _mm512_fmadd_ps(iota, _mm512_set1_ps(a), _mm512_set1_ps(b));
    const __m512 whole = _mm512_add_ps(x, _mm512_set1_ps(12582912.0f));
    __m512i lo, hi;

    if (bits == 4) { /* the permutation reads only the lowest 4 bits of an index */
        lo = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)code));
        hi = _mm512_srli_epi32(lo, 4);
    } else {
        const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
        const __m128i bytes = _mm_loadl_epi64((const void *)code);
        const __m512i all = _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(bytes, bytes));
        lo = _mm512_srlv_epi32(all, first);
        hi = _mm512_srli_epi32(lo, 4);
    }
    y[0] = _mm512_castps_si512(_mm512_permutexvar_ps(lo, whole));
    y[1] = _mm512_castps_si512(_mm512_permutexvar_ps(hi, whole));
}

INLINE void store_pairs(const __m512i *u, const __m512i *w, void *y, void *z)
{
    _mm512_storeu_si512(y, cb_i16_pair(u[0], w[0]));
    _mm512_storeu_si512(z, cb_i16_pair(u[1], w[1]));
}

/* A group of keys lies by channel, as a panel does. */
INLINE void group(int bits, const uint8_t *at, int hd, char *panel)
{
    const int bytes = 4 + 4 * bits;
    uint32_t head[CB_KIVI_MAX_HD];
    __m512 top = _mm512_setzero_ps(), inv;
    struct form f;
    float most;

    for (int c = 0; c < hd; c++)
        memcpy(head + c, at + c * bytes, sizeof *head);
    for (int c = 0; c < hd; c += 16)
        top = _mm512_max_ps(top, open_blocks(bits, head + c, c, &f));
    most = _mm512_reduce_max_ps(top);
    inv = _mm512_set1_ps(most > 0 ? I16_ROW_TOP / most : 0);
    for (int c = 0; c < hd; c += 16)
        scale_form(&f, c, inv);
    for (int c = 0; c < hd; c += 32)
        for (int i = c; i < c + 16; i++, panel += 128) {
            __m512i u[2], w[2];
            look_up(bits, at + i * bytes + 4, f.a[i], f.b[i], u);
            look_up(bits, at + (i + 16) * bytes + 4, f.a[i + 16], f.b[i + 16], w);
            store_pairs(u, w, panel, panel + 64);
        }
    _mm512_storeu_ps(panel, _mm512_set1_ps(most * (1.0f / I16_ROW_TOP)));
    _mm512_storeu_ps(panel + 64, _mm512_set1_ps(most * (1.0f / I16_ROW_TOP)));
}

/* 16 tokens' values, each scaled by its own largest magnitude */
INLINE void values(int bits, const uint8_t *const *row, int hd, struct i16_values *y, int at)
{
    const int bytes = 4 + 4 * bits;
    __m512 top = _mm512_setzero_ps(), inv;
    struct form f;

    for (int b = 0; b < hd / 32; b++) {
        uint32_t head[16];
        for (int i = 0; i < 16; i++)
            memcpy(head + i, row[i] + b * bytes, sizeof *head);
        top = _mm512_max_ps(top, open_blocks(bits, head, 16 * b, &f));
    }
    inv = _mm512_maskz_div_ps(_mm512_cmp_ps_mask(top, _mm512_setzero_ps(), _CMP_GT_OQ),
                              _mm512_set1_ps(I16_ROW_TOP), top);
    _mm512_storeu_ps(y->scale + at, _mm512_mul_ps(top, _mm512_set1_ps(1.0f / I16_ROW_TOP)));
    for (int b = 0; b < hd / 32; b++, y++) {
        int16_t *code = y->code + 32 * at;
        scale_form(&f, 16 * b, inv);
        for (int i = 0; i < 16; i += 2, code += 64) {
            const float *a = f.a + 16 * b + i, *m = f.b + 16 * b + i;
            __m512i u[2], w[2];
            look_up(bits, row[i] + b * bytes + 4, a[0], m[0], u);
            look_up(bits, row[i + 1] + b * bytes + 4, a[1], m[1], w);
            store_pairs(u, w, code, code + 32);
        }
    }
}

void cb_kivi_group_i16_avx512(int bits, const uint8_t *at, int hd, void *panel)
{
    if (bits == 4)
        group(4, at, hd, panel);
    else
        group(2, at, hd, panel);
}

void cb_kivi_values_i16_avx512(int bits, const uint8_t *const *row, int hd, void *y, int at)
{
    if (bits == 4)
        values(4, row, hd, y, at);
    else
        values(2, row, hd, y, at);
}
