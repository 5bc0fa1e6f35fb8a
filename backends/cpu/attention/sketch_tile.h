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
    _Alignas(64) int8_t w[TILE][SKETCH_MAX_HD]; /* of the strips that are scored */
    _Alignas(16) int16_t mult[TILE], base[TILE];
};

/* What a kernel is compiled for: m query heads, and usual numbers of bits, channels and strips.
 * Where all strips are scored, they come in order. */
struct shape {
    int m, bits, hd, n_strip;
    const struct sketch_strips *strips;
};

INLINE int n_strips(const struct shape *s) /* scored or not */
{
    return cb_sketch_pad(s->hd) / SKETCH_STRIP;
}

INLINE int strip_at(const struct shape *s, int i)
{
    return s->n_strip == n_strips(s) ? i : s->strips->at[i];
}

/* The j-th channel in the order of the strips: cb_sketch_channel(), a constant where it can be */
INLINE int channel_at(const struct shape *s, int j)
{
    return strip_at(s, j / SKETCH_STRIP) * SKETCH_STRIP + j % SKETCH_STRIP;
}

enum { PAIR = 128 }; /* bytes of two vectors of codes; a strip is bits / 2 of these */

INLINE int pairs_of(const struct shape *s)
{
    return s->n_strip * (s->bits / 2);
}

/* Where the i-th pair lies that is scored, within the codes of 32 tokens */
INLINE size_t pair_at(const struct shape *s, int i)
{
    const int each = s->bits / 2;
    return (size_t)(strip_at(s, i / each) * each + i % each) * PAIR;
}

/* Bytes of the codes of 32 tokens */
INLINE size_t group_bytes(const struct shape *s)
{
    return (size_t)cb_sketch_pad(s->hd) * 4 * (size_t)s->bits;
}

/* Prefetches what lies two blocks after x, where the CPU's own prefetchers do not look: they stop
 * at the end of a page, and a block is about as long. A core waits for few lines at once, so
 * scan_tile() asks for some with each piece that it multiplies. */
INLINE void prefetch(const struct shape *s, const uint8_t *x, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(x + 2 * cb_sketch_bytes(s->bits, s->hd) + i, 0, 2);
}

/* The same for one of several parts of the pairs of 32 tokens, whose codes are at `group` */
INLINE void ask_pairs(const struct shape *s, const uint8_t *group, int part, int parts)
{
    for (int i = pairs_of(s) * part / parts; i < pairs_of(s) * (part + 1) / parts; i++)
        prefetch(s, group + pair_at(s, i), PAIR);
}

/* m query heads q[m][hd padded] as the block wants them */
INLINE void open_tile(struct tile *t, const struct shape *s, const uint8_t *block, const float *q);
/* The scores of a block's tokens for the m heads */
INLINE void scan_tile(const struct shape *s, const uint8_t *code, const struct tile *t,
                      int16_t *score, int stride);

/* A tile of the next block is opened before this one's tokens are scored: it takes a chain of
 * steps, which the CPU then works on meanwhile. */
INLINE void scan_blocks(const struct shape *s, const uint8_t *block, int n, const float *q,
                        int16_t *score, int stride)
{
    const int pad = cb_sketch_pad(s->hd);
    const size_t bytes = cb_sketch_bytes(s->bits, s->hd);
    struct tile t[2];

    open_tile(&t[0], s, block, q);
    for (int b = 0; b < n; b++, block += bytes, score += SKETCH_BLOCK) {
        if (b + 1 < n)
            open_tile(&t[(b + 1) & 1], s, block + bytes, q);
        prefetch(s, block, (size_t)pad * 4);
        scan_tile(s, block + (size_t)pad * 4, &t[b & 1], score, stride);
    }
}

/* Each number of heads, and the usual numbers of channels, have code of their own. */
#define HEADS(m)                                                                                   \
    case m:                                                                                        \
        scan_blocks(&(const struct shape){ m, bits, hd, n_strip, strips }, block, n, q, score,     \
                    stride);                                                                       \
        break

INLINE void scan_heads(int heads, int bits, int hd, int n_strip, const struct sketch_strips *strips,
                       const uint8_t *block, int n, const float *q, int16_t *score, int stride)
{
    switch (heads) {
        HEADS(1);
        HEADS(2);
        HEADS(3);
        HEADS(4);
        HEADS(5);
        HEADS(6);
        HEADS(7);
        HEADS(8);
    }
}

#define CHANNELS(all, scored)                                                                      \
    if (bits == 2 && hd == (all) && strips->n * SKETCH_STRIP == (scored)) {                        \
        scan_heads(m, 2, all, (scored) / SKETCH_STRIP, strips, block, n_block, q, score, stride);  \
        continue;                                                                                  \
    }

static void scan(int bits, int hd, const struct sketch_strips *strips, const uint8_t *block,
                 int n_block, const float *q, int heads, int16_t *score, int stride)
{
    const int pad = cb_sketch_pad(hd);

    for (int m; heads > 0; heads -= m, q += m * pad, score += m * stride) {
        m = heads < TILE ? heads : TILE;
        CHANNELS(64, 64)
        CHANNELS(64, 32)
        CHANNELS(128, 128)
        CHANNELS(128, 64)
        if (bits == 2)
            scan_heads(m, 2, hd, strips->n, strips, block, n_block, q, score, stride);
        else
            scan_heads(m, 4, hd, strips->n, strips, block, n_block, q, score, stride);
    }
}

#undef HEADS
#undef CHANNELS

#endif
