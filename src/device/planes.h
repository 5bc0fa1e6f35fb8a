/* SPDX-License-Identifier: MIT */
/* planes.h - keys on 8 bits in two planes. The first plane is the sketch that tokens search
 * (sketch.h): 2 or 4 bits, beside the other keys of its block. The second has a row of its own for
 * each token: the other bits, which say where in its step the number lies.
 *
 *     key = minimum + step * (code - 1/2 + (rest + 1/2) / 2^n), n = 8 - bits
 *
 * to the nearest half. The minimum and the step are the sketch's. Each 16 channels of a row are 8
 * bytes with the rest's low 4 bits, then with n = 6 4 bytes with the upper 2, in the order of a
 * sketch's codes: byte c % 4 of a word holds channels c, c + 4, ... from its lowest bits on. */
#ifndef PLANES_H
#define PLANES_H

#include <string.h>

#include "sketch.h"

/* Bytes of a row; hd is a multiple of 16 */
static inline size_t cb_planes_row_bytes(int bits, int hd)
{
    return (size_t)hd / 8 * (size_t)(8 - bits);
}

/* A token's first codes in a block; those of each next 16 channels are 128 or, with 4 bits, 256
 * bytes on */
static inline const uint8_t *cb_planes_first(int bits, int hd, const uint8_t *block, int token)
{
    int shift;
    return block + (size_t)hd * 4 + cb_sketch_at(bits, hd, token, 0, &shift);
}

/* The j-th codes of a word: four of `bits` bits, a byte each */
static inline uint32_t cb_planes_four(int bits, const uint8_t *word, int j)
{
    uint32_t w;

    memcpy(&w, word, sizeof w);
    return w >> bits * j & (bits == 2 ? 0x03030303u : 0x0f0f0f0fu);
}

/* 16 channels of a token -> code * 2^n + rest - 128. first: their first codes; rest: their part of
 * the row */
static inline void cb_planes_codes(int bits, const uint8_t *first, const uint8_t *rest, int8_t *out)
{
    const int per = 8 / bits; /* fours a word */

    for (int j = 0; j < 4; j++) {
        const uint32_t code = cb_planes_four(bits, first + j / per * 128, j % per);
        const uint32_t low = cb_planes_four(4, rest + j / 2 * 4, j % 2);
        const uint32_t up = bits == 2 ? cb_planes_four(2, rest + 8, j) : 0;
        const uint32_t all = (code << (8 - bits) | up << 4 | low) ^ 0x80808080u;
        memcpy(out + 4 * j, &all, sizeof all);
    }
}

/* key = minimum + step * cb_planes_step() * (codes' number + cb_planes_middle()): the product is
 * exact in f32, so every device decodes the same key. */
static inline float cb_planes_step(int bits)
{
    return 1.0f / (float)(1 << (8 - bits));
}

static inline float cb_planes_middle(int bits)
{
    return 128 - (float)((1 << (8 - bits)) - 1) / 2;
}

/* The second plane of key x[hd], whose first is in the block; step[hd] and min[hd] are the block's
 * (cb_sketch_steps) -> row */
void cb_planes_put(int bits, int hd, const float *x, int token, const float *step, const float *min,
                   const uint8_t *block, uint8_t *row);
/* The key -> y[hd], halves */
void cb_planes_get(int bits, int hd, const uint8_t *block, int token, const uint8_t *row,
                   uint16_t *y);

#endif
