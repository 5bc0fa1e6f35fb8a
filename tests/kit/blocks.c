/* SPDX-License-Identifier: MIT */
/* blocks.c - random blocks of quantised weights with steps of a chosen size. */
#include "blocks.h"

#include <math.h>

/* Where a block has its f16 step and that of its minima (0: none); the step of deviation 1 */
static const struct {
    int d, dmin;
    float unit;
} place[DT_COUNT] = {
    [DT_Q4_1] = { 0, 2, 1 },        [DT_Q5_1] = { 0, 2, 1 },        [DT_Q4_K] = { 0, 2, 1 },
    [DT_Q5_K] = { 0, 2, 1 },        [DT_Q6_K] = { 208, 0, 1 },      [DT_Q2_K] = { 80, 82, 0.06f },
    [DT_Q3_K] = { 108, 0, 0.025f }, [DT_IQ4_NL] = { 0, 0, 0.015f }, [DT_IQ4_XS] = { 0, 0, 0.0008f },
    [DT_MXFP4] = { 0, 0, 0.15f },   [DT_TQ1_0] = { 52, 0, 1 },      [DT_TQ2_0] = { 64, 0, 1 },
    [DT_IQ1_S] = { 0, 0, 0.15f },   [DT_IQ1_M] = { 0, 0, 0.15f },   [DT_IQ2_XXS] = { 0, 0, 0.02f },
    [DT_IQ2_XS] = { 0, 0, 0.02f },  [DT_IQ2_S] = { 0, 0, 0.02f },   [DT_IQ3_XXS] = { 0, 0, 0.008f },
    [DT_IQ3_S] = { 0, 0, 0.007f },
};

float cb_block_unit(enum dtype t)
{
    return place[t].unit;
}

void cb_block_steps(enum dtype t, uint8_t *block, float d, float dmin)
{
    int e;

    if (t == DT_MXFP4) {
        (void)frexpf(d, &e); /* |d| = 0.5..1 * 2^e */
        block[0] = (uint8_t)(127 + (d == 0 ? -127 : e > 100 ? 100 : e < -127 ? -127 : e));
        return;
    }
    if (t == DT_IQ1_M) { /* in the highest nibbles of four words */
        for (int i = 0; i < 4; i++) {
            uint8_t *byte = block + 49 + 2 * i;
            *byte = (uint8_t)((*byte & 15) | (cb_f32_to_f16(d) >> 4 * i & 15) << 4);
        }
        return;
    }
    cb_store16(block + place[t].d, cb_f32_to_f16(d));
    if (place[t].dmin)
        cb_store16(block + place[t].dmin, cb_f32_to_f16(dmin));
}
