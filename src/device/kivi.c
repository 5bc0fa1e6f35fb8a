/* SPDX-License-Identifier: MIT */
/* kivi.c - blocks of 32 numbers on 2 or 4 bits (KIVI, Liu et al. 2024, section 3.1: round to
 * nearest between a group's smallest and largest). */
#include "kivi.h"

#include <string.h>

static void put_half(void *block, int i, uint16_t h)
{
    memcpy((char *)block + 2 * i, &h, sizeof h);
}

static float get_half(const void *block, int i)
{
    uint16_t h;
    memcpy(&h, (const char *)block + 2 * i, sizeof h);
    return cb_f16_to_f32(h);
}

/* to the nearest whole number, ties to even, for 0 <= x < 2^22 */
static float nearest(float x)
{
    const float big = 12582912.0f;
    return (x + big) - big;
}

/* Code i is at bit bits * (i / n) of byte i % n, of n bytes: the codes in one byte are n apart. */
void cb_kivi_encode(int bits, const float *x, int stride, void *block)
{
    const int top = (1 << bits) - 1, n = 4 * bits;
    uint8_t *code = (uint8_t *)block + 4;
    float min = x[0], max = x[0], step;

    for (int i = 1; i < KIVI_GROUP; i++) {
        const float y = x[(int64_t)i * stride];
        min = y < min ? y : min;
        max = y > max ? y : max;
    }
    put_half(block, 0, cb_f32_to_f16((max - min) / (float)top));
    put_half(block, 1, cb_f32_to_f16(min));
    step = get_half(block, 0);
    min = get_half(block, 1);
    memset(code, 0, (size_t)n);
    for (int i = 0; i < KIVI_GROUP && step > 0; i++) {
        const float y = (x[(int64_t)i * stride] - min) / step;
        const int c = !(y > 0) ? 0 : y >= (float)top ? top : (int)nearest(y);
        code[i % n] = (uint8_t)(code[i % n] | c << (i / n * bits));
    }
}

float cb_kivi_decode(int bits, const void *block, int i)
{
    const int n = 4 * bits;
    const int c = ((const uint8_t *)block)[4 + i % n] >> (i / n * bits) & ((1 << bits) - 1);
    return get_half(block, 1) + (float)c * get_half(block, 0);
}

void cb_kivi_row(const struct kv_kivi *q, int v, int slot, int hd, float *y)
{
    const int bits = v ? q->bits_v : q->bits_k;
    const int32_t *rows = v ? q->row_v : q->row_k;
    const size_t row = (size_t)(rows ? rows[slot] : slot), block = cb_kivi_block_bytes(bits);
    const uint8_t *at = v ? q->v + row * (size_t)(hd / KIVI_GROUP) * block
                          : q->k + row / KIVI_GROUP * (size_t)hd * block;

    for (int c = 0; c < hd; c++)
        y[c] = v ? cb_kivi_decode(bits, at + (size_t)(c / KIVI_GROUP) * block, c % KIVI_GROUP)
                 : cb_kivi_decode(bits, at + (size_t)c * block, (int)(row % KIVI_GROUP));
}
