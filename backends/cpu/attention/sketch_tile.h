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
    _Alignas(16) int16_t mult[TILE], base[TILE];
};

/* Prefetches what lies two blocks behind x, where the CPU's own prefetchers do not look: they stop
 * at the end of a page, and a block is about as long. A core waits for few lines at once, so
 * scan_tile() asks for some with each piece that it multiplies. */
INLINE void ask_ahead(int bits, int n, const uint8_t *x, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(x + 2 * cb_sketch_bytes(bits, n) + i, 0, 2);
}

/* m query heads q[m][n] as the block wants them */
INLINE void open_tile(struct tile *t, int m, int bits, int hd, const uint8_t *block,
                      const float *q);
/* The scores of a block's tokens for the m heads; n: channels, padded */
INLINE void scan_tile(int m, int bits, int n, const uint8_t *code, const struct tile *t,
                      int16_t *score, int stride);

/* A tile of the next block is opened before this one's tokens are scored: it takes a chain of
 * steps, which the CPU then works on meanwhile. */
INLINE void scan_blocks(int m, int bits, int hd, const uint8_t *block, int n, const float *q,
                        int16_t *score, int stride)
{
    const int pad = cb_sketch_pad(hd);
    const size_t bytes = cb_sketch_bytes(bits, hd);
    struct tile t[2];

    open_tile(&t[0], m, bits, hd, block, q);
    for (int b = 0; b < n; b++, block += bytes, score += SKETCH_BLOCK) {
        if (b + 1 < n)
            open_tile(&t[(b + 1) & 1], m, bits, hd, block + bytes, q);
        ask_ahead(bits, pad, block, (size_t)pad * 4);
        scan_tile(m, bits, pad, block + (size_t)pad * 4, &t[b & 1], score, stride);
    }
}

/* Each number of heads, and the usual head dimensions, have code of their own. */
INLINE void scan_heads(int m, int bits, int hd, const uint8_t *block, int n, const float *q,
                       int16_t *score, int stride)
{
    switch (m) {
    case 1:
        scan_blocks(1, bits, hd, block, n, q, score, stride);
        break;
    case 2:
        scan_blocks(2, bits, hd, block, n, q, score, stride);
        break;
    case 3:
        scan_blocks(3, bits, hd, block, n, q, score, stride);
        break;
    case 4:
        scan_blocks(4, bits, hd, block, n, q, score, stride);
        break;
    case 5:
        scan_blocks(5, bits, hd, block, n, q, score, stride);
        break;
    case 6:
        scan_blocks(6, bits, hd, block, n, q, score, stride);
        break;
    case 7:
        scan_blocks(7, bits, hd, block, n, q, score, stride);
        break;
    default:
        scan_blocks(8, bits, hd, block, n, q, score, stride);
        break;
    }
}

static void scan(int bits, int hd, const uint8_t *block, int n, const float *q, int heads,
                 int16_t *score, int stride)
{
    for (int h = 0; h < heads; h += TILE, q += TILE * cb_sketch_pad(hd), score += TILE * stride) {
        const int m = heads - h < TILE ? heads - h : TILE;
        if (bits == 2 && hd == 64)
            scan_heads(m, 2, 64, block, n, q, score, stride);
        else if (bits == 2 && hd == 128)
            scan_heads(m, 2, 128, block, n, q, score, stride);
        else if (bits == 2)
            scan_heads(m, 2, hd, block, n, q, score, stride);
        else
            scan_heads(m, 4, hd, block, n, q, score, stride);
    }
}

#endif
