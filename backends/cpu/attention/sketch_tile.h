/* SPDX-License-Identifier: MIT */
/* sketch_tile.h - what the vector kernels of sketches share: query heads go through a block in
 * tiles, and each number of heads and bits has code of its own. A kernel defines open_tile() and
 * scan_tile() for its instructions. */
#ifndef SKETCH_TILE_H
#define SKETCH_TILE_H

#include <string.h>

#include "device/sketch.h"
#include "sketch_form.h"

#define INLINE static inline __attribute__((always_inline))

enum { TILE = 8 }; /* most query heads whose sums are in registers */

struct tile {
    _Alignas(64) int8_t w[TILE][SKETCH_MAX_HD];
    int16_t mult[TILE], base[TILE];
};

/* m query heads q[m][n] as the block wants them */
INLINE void open_tile(struct tile *t, int m, int bits, int hd, const uint8_t *block,
                      const float *q);
/* The scores of a block's tokens for the m heads; n: channels, padded */
INLINE void scan_tile(int m, int bits, int n, const uint8_t *code, const struct tile *t,
                      int16_t *score, int stride);

INLINE void scan_some(int m, int bits, int n, const uint8_t *code, const struct tile *t,
                      int16_t *score, int stride)
{
    switch (m) {
    case 1:
        scan_tile(1, bits, n, code, t, score, stride);
        break;
    case 2:
        scan_tile(2, bits, n, code, t, score, stride);
        break;
    case 3:
        scan_tile(3, bits, n, code, t, score, stride);
        break;
    case 4:
        scan_tile(4, bits, n, code, t, score, stride);
        break;
    case 5:
        scan_tile(5, bits, n, code, t, score, stride);
        break;
    case 6:
        scan_tile(6, bits, n, code, t, score, stride);
        break;
    case 7:
        scan_tile(7, bits, n, code, t, score, stride);
        break;
    default:
        scan_tile(8, bits, n, code, t, score, stride);
        break;
    }
}

static void scan(int bits, int hd, const uint8_t *block, const float *q, int heads, int16_t *score,
                 int stride)
{
    const int n = cb_sketch_pad(hd);
    const uint8_t *code = block + (size_t)n * 4;
    struct tile t;

    for (int h = 0; h < heads; h += TILE, q += TILE * n, score += TILE * stride) {
        const int m = heads - h < TILE ? heads - h : TILE;
        open_tile(&t, m, bits, hd, block, q);
        if (bits == 2)
            scan_some(m, 2, n, code, &t, score, stride);
        else
            scan_some(m, 4, n, code, &t, score, stride);
    }
}

#endif
