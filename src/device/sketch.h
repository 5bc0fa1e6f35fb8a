/* SPDX-License-Identifier: MIT */
/* sketch.h - what a KV head's keys are searched by, to find those that a query attends to: the keys
 * on 2 or 4 bits, in blocks of 128 tokens, or bounds of the keys of a page of tokens. (Partial
 * keys, a third kind, are plain rows of halves: bank/store_sketch.c.)
 *
 * A block holds a step and a minimum for each channel, as halves, then the codes:
 * key = minimum + code * step. Channels are padded to a multiple of 16; padding has step 0.
 *
 * The codes lie as integer dot products read them. A group of 32 tokens is two vectors of 64 bytes
 * for every 32 / bits channels; a token has four bytes in a vector. Tokens 0-3, 8-11, 16-19 and
 * 24-27 are in the first vector, so that packing two vectors of 32-bit sums to 16 bits puts the
 * tokens in order. */
#ifndef SKETCH_H
#define SKETCH_H

#include "device.h"

enum {
    SKETCH_BLOCK = KV_PREPACK, /* tokens a block */
    SKETCH_MAX_HD = KV_MAX_HD,
    SKETCH_STRIP = 16, /* adjacent channels that are scored or left out together */
    /* Scores are logits in powers of 2, times SKETCH_UNIT. */
    SKETCH_UNIT = 32,
    SKETCH_BUCKETS = 2048, /* of 1 / SKETCH_UNIT each: where the chosen end, below the top */
    SKETCH_PIECE = 1024,   /* tokens whose weights are summed as integers */
    SKETCH_ONE = 32767,    /* the weight of a piece's largest score */
};

static inline int cb_sketch_pad(int hd)
{
    return (hd + SKETCH_STRIP - 1) & ~(SKETCH_STRIP - 1);
}

static inline size_t cb_sketch_bytes(int bits, int hd) /* a block's */
{
    return (size_t)cb_sketch_pad(hd) * (4 + SKETCH_BLOCK / 8 * (size_t)bits);
}

/* Half of the strips of channels, rounded up, and the bytes of a block that are read where scores
 * are made of them */
static inline int cb_sketch_half(int hd)
{
    return (cb_sketch_pad(hd) / SKETCH_STRIP + 1) / 2;
}

static inline size_t cb_sketch_half_bytes(int bits, int hd)
{
    const size_t scored = (size_t)(cb_sketch_half(hd) * SKETCH_STRIP);
    return (size_t)cb_sketch_pad(hd) * 4 + scored * SKETCH_BLOCK / 8 * (size_t)bits;
}

/* Where a code is: the byte, counted from the first code, and the bit in it */
static inline size_t cb_sketch_at(int bits, int hd, int token, int channel, int *shift)
{
    const int wide = 32 / bits, n = cb_sketch_pad(hd) / wide, c = channel % wide;

    *shift = c / 4 * bits;
    return (((size_t)(token / 32) * (size_t)n + (size_t)(channel / wide)) * 2 +
            (size_t)(token / 4 % 2)) *
               64 +
           (size_t)(token % 32 / 8 * 16 + token % 4 * 4 + c % 4);
}

/* A block is made in three steps: the range of each channel over the tokens; the block's head,
 * which turns min and max into the minimum as it is stored and the inverse of the step; the codes
 * of one token after the other. A token outside the range gets the nearest code. */
void cb_sketch_widen(const float *x, int hd, int first, float *min, float *max);
void cb_sketch_head(int bits, int hd, float *min, float *max, void *block);
void cb_sketch_put(int bits, int hd, const float *x, int token, const float *min, const float *inv,
                   void *block);
/* step[hd padded], min[hd padded] of a block */
void cb_sketch_steps(int hd, const void *block, float *step, float *min);

/* Sums of products with codes are 16 bits wide after this shift. */
static inline int cb_sketch_shift(int bits)
{
    return bits > 2 ? 2 : 0;
}

/* What the largest weight of a query head in a block is multiplied by to become the multiplier of
 * sums of products, in 1 / 32768 */
static inline float cb_sketch_mult_unit(int bits)
{
    return 32768.0f / 127 * (float)(1 << cb_sketch_shift(bits));
}

/* A logit's scale in SKETCH_UNITs of a power of 2 */
static inline float cb_sketch_scale(float scale)
{
    return scale * 1.44269504f * SKETCH_UNIT;
}

/* The query as scores want it: padded, times cb_sketch_scale(scale) -> y[hd padded] */
void cb_sketch_query(const float *q, int hd, float scale, float *y);

/* All strips of channels: the n that scores are made of, ascending, then the others, ascending. A
 * channel of the others counts as if all codes were in the middle of their range,
 * cb_sketch_middle(). */
struct sketch_strips {
    int n, n_all;
    uint8_t at[SKETCH_MAX_HD / SKETCH_STRIP];
};

/* The j-th channel in the order of the strips */
static inline int cb_sketch_channel(const struct sketch_strips *s, int j)
{
    return s->at[j / SKETCH_STRIP] * SKETCH_STRIP + j % SKETCH_STRIP;
}

static inline float cb_sketch_middle(int bits)
{
    return (float)((1 << bits) - 1) / 2;
}

void cb_sketch_all_strips(int hd, struct sketch_strips *s);

/* 32 weights 2^(-i / SKETCH_UNIT). A score that is d below its piece's largest has the weight
 * cb_sketch_weight()[d % 32] >> d / 32. */
extern const uint16_t cb_sketch_weight[32];
/* A sum of weights as a score: its highest 32 bits are log2 in whole units of SKETCH_UNIT, and one
 * more for each of these that they reach. */
extern const uint32_t cb_sketch_log[32];

/* The work space of sketch_topk. A piece's scores lie together: [n_kv][n_piece][group][PIECE]. */
struct sketch_work {
    int16_t *score;
    float *query;                 /* [n_head][hd padded] */
    struct sketch_strips *strips; /* [n_kv] */
    int16_t *top;                 /* [n_kv][n_piece][group] largest score of a piece */
    uint32_t *sum;                /* the same: sum of the piece's weights */
    int16_t *lse;                 /* [n_head] log of the sum of all weights, as a score */
    uint16_t *rank;               /* [n_kv][n_piece][PIECE] how far a token is from weight 1 */
    uint32_t *count;              /* [n_kv][n_item][BUCKETS] */
    void *own;                    /* [n_kv][2 + n_item] ints of the device's own */
};

static inline int cb_sketch_pieces(int n_block)
{
    return (n_block * SKETCH_BLOCK + SKETCH_PIECE - 1) / SKETCH_PIECE;
}

/* Cuts memory for n_block blocks and n_item lists of counts a KV head into its parts; returns the
 * bytes. mem may be NULL. Where the parts lie that calls leave does not depend on n_item. */
size_t cb_sketch_work(void *mem, int n_head, int n_kv, int hd, int n_block, int n_item,
                      struct sketch_work *w);
enum { SKETCH_MAX_ITEMS = 16 }; /* most lists of counts a KV head */

/* The queries of s, and which strips of each KV head are scored -> the work space */
void cb_sketch_queries(const struct sketch_topk *s, const struct sketch_work *w);

/* ---- bounds ---- */

/* A page of any number of tokens has, in place of codes, its bounds: each channel's smallest and
 * largest key, as halves rounded outwards: min[hd], max[hd]. */
static inline size_t cb_bounds_bytes(int hd) /* a page's */
{
    return (size_t)hd * 2 * sizeof(uint16_t);
}

void cb_bounds_put(int hd, const float *min, const float *max, void *bounds);

/* ---- choosing by codes ---- */

/* The log of a head's sum of weights, from the n >= 1 pieces' parts at a stride of `stride` */
int16_t cb_sketch_lse(const int16_t *top, const uint32_t *sum, int n, int stride);

/* Adds to out[n] the share of the softmax that each of n blocks has, from their largest scores and
 * the sums of their weights */
void cb_sketch_shares(const int16_t *top, const uint32_t *sum, int n, float *out);

/* How far down the chosen go: ranks below *limit, and the first *n_equal of those equal to it.
 * count[n_bucket]: tokens of each rank. At most k tokens; with miss > 0 no more than it takes for
 * the others' weights to sum to at most `miss`. Returns how many. */
int cb_sketch_limit(const uint32_t *count, int n_bucket, int k, float miss, int *limit,
                    int *n_equal);
/* `miss` as a sum of weights; a token of rank r has cb_sketch_weight[r % 32] << 24 >> r / 32. */
uint64_t cb_sketch_rest(float miss);

#endif
