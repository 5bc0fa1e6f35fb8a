/* SPDX-License-Identifier: MIT */
/* attn_kivi_avx2.c - blocks of 32 numbers on 2 or 4 bits -> the integers that attention multiplies,
 * by way of f32. */
#include "attn_i16.h"
#include "cpu/vector/vec.h"

enum { PANEL = 16 }; /* as attn_half_avx2.c packs keys */

/* A group of 32 quantised keys. In the f32 panels, [hd][PANEL] each, the numbers of a pair are
 * adjacent. */
void cb_kivi_group_i16_avx2(int bits, const uint8_t *group, int hd, void *panel)
{
    float x[CB_KIVI_MAX_HD * KIVI_GROUP];
    char *y = panel;

    cb_kivi_avx2.group(bits, group, hd, x);
    for (int j = 0; j < KIVI_GROUP; j += VW) {
        const float *k = x + j / PANEL * PANEL * hd + j % PANEL;
        char *at = y + (size_t)(j / PANEL * PANEL) * (size_t)(2 * hd + 4);
        vf top = v_set1(0.0f), inv;
        for (int c = 0; c < hd; c++)
            top = v_max(top, v_abs(v_load(k + c * PANEL)));
        inv = _mm256_and_ps(_mm256_cmp_ps(top, v_set1(0.0f), _CMP_GT_OQ),
                            v_div(v_set1(I16_ROW_TOP), top));
        v_store((float *)(void *)(at + 2 * PANEL * hd) + j % PANEL,
                v_mul(top, v_set1(1.0f / I16_ROW_TOP)));
        at += j % PANEL * 4;
        for (int c = 0; c < hd; c += c % 32 == 15 ? 17 : 1, at += PANEL * 4) {
            const vf other = v_load(k + (c + 16) * PANEL);
            _mm256_storeu_si256((void *)at, cb_i16_pair(cb_i16_code(v_load(k + c * PANEL), inv),
                                                        cb_i16_code(other, inv)));
        }
    }
}

/* 16 tokens' quantised values -> entries from `at` on */
void cb_kivi_values_i16_avx2(int bits, const uint8_t *const *row, int hd, void *vp, int at)
{
    struct i16_values *y = vp;
    float x[16][CB_KIVI_MAX_HD];
    vf inv[16];

    for (int i = 0; i < 16; i++) {
        vf top = v_set1(0.0f);
        float most;
        cb_kivi_avx2.value(bits, row[i], hd, x[i]);
        for (int c = 0; c < hd; c += VW)
            top = v_max(top, v_abs(v_load(x[i] + c)));
        most = v_hmax(top);
        inv[i] = v_set1(most > 0 ? I16_ROW_TOP / most : 0);
        y->scale[at + i] = most / I16_ROW_TOP;
    }
    for (int c = 0; c < hd; c += VW) {
        int16_t *code = y[c / 32].code + 32 * at + c % 32 * 2;
        for (int i = 0; i < 16; i += 2, code += 64)
            _mm256_storeu_si256((void *)code,
                                cb_i16_pair(cb_i16_code(v_load(x[i] + c), inv[i]),
                                            cb_i16_code(v_load(x[i + 1] + c), inv[i + 1])));
    }
}
