/* SPDX-License-Identifier: MIT */
/* kern_mm.h - packed weights, quantised activations and the kernels that multiply them.
 *
 * Weights are packed into groups of 16 rows. A group is a sequence of chunks. A chunk holds up to
 * 256 columns: first the scales of its blocks of 32 columns, then the quants block by block, so a
 * product reads memory strictly in order. A line is 64 bytes: 16 rows x 4 consecutive columns.
 *   2 bits  2 lines; pair g % 4 of line g / 4 belongs to columns 4g..4g+3
 *   3 bits  one line of third bits first, as the fifth bits below, then as 2 bits
 *   4 bits  4 lines; line j has columns 4j..4j+3 in the low nibbles, 16+4j.. in the high ones
 *   5 bits  one line of fifth bits first: bit g of a byte belongs to columns 4g..4g+3
 *   6 bits  two lines of bit pairs first: pair g % 4 of line g / 4 belongs to columns 4g..4g+3
 *   8 bits  8 lines, signed
 * Scales, each [16] for the rows: f16 d (Q4_0, Q5_0, Q8_0) or f16 d, f16 m (Q4_1, Q5_1) a block;
 * f16 d, f16 dmin, then u8 scale and u8 min a block (Q4_K, Q5_K); f16 d (64 bytes), then i8 scale
 * for each 16 columns (Q6_K). The other forms of scales stand at enum mm_scale. Codes of some types
 * are places in a table of signed bytes. Float types are [n_in][16]; BF16, where the ISA has
 * `halve`, is [n_in / 4][16 rows][4 columns], with zeros after the last column.
 *
 * Activations come in tiles of `width` tokens. Quantised, a record a block: i8 q[width][32], f32
 * d[width], f32 d * sum(q), i32 -sum(q), i32 -sum(q[0..15]), i32 -sum(q[16..31]). Plain: f32
 * [n_in][width]. Halved: a number is two of bf16, high + low, which have 16 of its bits;
 * [n_in / 4][width][high, low][4 columns]. 16-bit: one token takes a record of two. Its 8-bit codes
 * come first and count 256 times; the codes of their remainders come second, in steps of d / 256.
 * After the codes only the second token's numbers are read; they belong to both codes together.
 *
 * A block adds d * (s * (sum of integer products)) [+ m * (d * sum q)] to the f32 result, blocks in
 * order: every kernel of an ISA does the same operations for a token, whatever the width. */
#ifndef KERN_MM_H
#define KERN_MM_H

#include "gguf/dtype_coded.h"

enum {
    MM_ROWS = 16,      /* rows a group */
    MM_TILE_MAX = 6,   /* tokens */
    MM_PANEL_MAX = 32, /* rows */
    MM_GROUP_MAX = 2,  /* groups that a batch multiplies at once */
    MM_CHUNK = 8,      /* blocks */
    MM_AHEAD = 6 << 10 /* prefetch distance in a stream of packed weights, bytes */
};

/* Forms of a panel: weights unpacked to bytes, with f32 scales, in a layout private to the ISA.
 * SYMn: symmetric n-bit codes (8: signed); MINn: n-bit codes with a minimum; SYM16: 6 bits, one
 * scale for each 16 columns; WIDE16: the same with 7 bits; MIN16: 2 bits, one scale and one minimum
 * for each 16 columns. */
enum mm_panel {
    MM_SYM4,
    MM_SYM5,
    MM_SYM8,
    MM_MIN4,
    MM_MIN5,
    MM_SYM16,
    MM_WIDE16,
    MM_MIN16,
    MM_PANELS
};

/* Scales of 16 rows: those of a chunk, then those of a block. f16 dmin follows f16 d. */
enum mm_scale {
    MM_HALVES,   /* none; f16 d [, f16 m] */
    MM_EXPONENT, /* none; u8 e of a step 2^(e - 128) */
    MM_CHUNK_D,  /* f16 d; none */
    MM_ONE,      /* f16 d; i8 */
    MM_TWO,      /* f16 d; i8 for each 16 columns */
    MM_BYTES,    /* f16 d, f16 dmin; u8 scale, u8 minimum */
    MM_NIBBLES   /* f16 d, f16 dmin; u8 for each 16 columns: scale (low nibble) and minimum */
};

typedef void (*mm_dot)(const void *w, const void *x, int n_in, float *out);
typedef void (*mm_batch)(const void *w, size_t step, int n_group, const void *x, int n_in,
                         int n_tok, float *out);

struct kern_mm {
    int tile;       /* tokens a tile, at most */
    int direct_max; /* up to this many tokens multiply packed weights, more of them a panel */
    int panel_rows; /* 16 or 32 */
    /* x[width][n_in] -> records, one a block, `step` bytes apart */
    void (*quantize)(const float *x, int width, int n_in, void *rec, size_t step);
    /* x[n_in] -> 16-bit records, in the same way */
    void (*quantize_act16)(const float *x, int n_in, void *rec, size_t step);
    void (*quantize_batch)(const float *x, int n_in, void *rec, size_t step); /* for batch */
    /* x[width][n_in] -> halved, what `direct` multiplies with BF16; NULL: with plain numbers */
    void (*halve)(const float *x, int width, int n_in, void *out);
    /* packed group x tile of i + 1 tokens -> out[i + 1][16] */
    mm_dot direct[DT_COUNT][MM_TILE_MAX];
    mm_dot act16[DT_COUNT]; /* packed group x a 16-bit token -> out[16]; NULL: a float type */
    mm_dot q8_all_lines;    /* act16[DT_Q8_0] that prefetches every line; NULL: that one does */
    /* [act16] n_group packed groups (1 or 2), `step` bytes apart, x n_tok tokens ->
     * out[n_group][n_tok][16], bit for bit the results of a token alone. Each token has a record of
     * its own; those of a block are adjacent. [0], for 8-bit tokens, may be NULL */
    mm_batch batch[2][DT_COUNT];
    /* panel_rows / 16 packed groups -> a panel */
    void (*unpack[DT_COUNT])(const void *const *w, int n_in, void *panel);
    /* panel x tile of i + 1 tokens -> out[i + 1][panel_rows] */
    mm_dot panel[MM_PANELS][MM_TILE_MAX];
};

extern const struct kern_mm cb_mm_scalar, cb_mm_avx2, cb_mm_avxvnni, cb_mm_avx512, cb_mm_avx512vnni,
    cb_mm_neon, cb_mm_i8mm, cb_mm_bf16;

/* Kernels that multiply a panel with many tokens in one call, by instructions for whole matrices.
 * Their panels and records are those of the tier's kern_mm but for the codes' zero and the width of
 * a tile of tokens; their results are the same bits. */
enum { MM_MANY_TILE = 16, MM_MANY_RUN = 12 * MM_MANY_TILE }; /* tokens a tile, and a call */
/* panel x n_tok tokens, in tiles of MM_MANY_TILE and a narrower last one -> out[n_tok][panel_rows]
 */
typedef void (*mm_many)(const void *panel, const void *x, int n_in, int n_tok, float *out);

struct kern_many {
    void (*unpack[DT_COUNT])(const void *const *w, int n_in, void *panel);
    mm_many multiply[MM_PANELS];
    mm_batch batch[2][DT_COUNT]; /* as kern_mm's, for up to MM_MANY_TILE tokens */
};
enum { MM_MANY_BATCH = 4 }; /* tokens of a batch that fill enough of a tile to use it */

extern const struct kern_many cb_many_amx;

/* many_check.c: multiplies a few random matrices with `many` and with the one-token kernels of k.
 * 0: equal bits. Else what differs -> why */
int cb_many_check(const struct kern_many *many, const struct kern_mm *k, char *why, size_t size);

struct mm_layout {
    int lines;       /* 64-byte lines a block; 0: a float type */
    int block_scale; /* bytes of scales a block, for 16 rows */
    int chunk_scale; /* bytes of scales a chunk, for 16 rows */
    int zero;        /* the code of weight 0; with a table what is added to its numbers */
    enum mm_panel panel;
    enum mm_scale scale;
    const int8_t *book; /* [16], the table that codes are places in, or NULL */
    int down;           /* a chunk's f16 d and dmin count 2^-down */
};

/* Kernels index this table by constants only, so the compiler can fold it. */
static const struct mm_layout mm_layout[DT_COUNT] = {
    [DT_Q4_0] = { 4, 32, 0, 8, MM_SYM4, MM_HALVES, NULL, 0 },
    [DT_Q4_1] = { 4, 64, 0, 0, MM_MIN4, MM_HALVES, NULL, 0 },
    [DT_Q5_0] = { 5, 32, 0, 16, MM_SYM5, MM_HALVES, NULL, 0 },
    [DT_Q5_1] = { 5, 64, 0, 0, MM_MIN5, MM_HALVES, NULL, 0 },
    [DT_Q8_0] = { 8, 32, 0, 0, MM_SYM8, MM_HALVES, NULL, 0 },
    [DT_Q4_K] = { 4, 32, 64, 0, MM_MIN4, MM_BYTES, NULL, 0 },
    [DT_Q5_K] = { 5, 32, 64, 0, MM_MIN5, MM_BYTES, NULL, 0 },
    [DT_Q6_K] = { 6, 32, 64, 32, MM_SYM16, MM_TWO, NULL, 0 },
    [DT_Q2_K] = { 2, 32, 64, 0, MM_MIN16, MM_NIBBLES, NULL, 0 },
    [DT_Q3_K] = { 3, 32, 64, 4, MM_SYM16, MM_TWO, NULL, 0 },
    [DT_IQ4_NL] = { 4, 32, 0, 0, MM_SYM8, MM_HALVES, cb_book_iq4, 0 },
    [DT_IQ4_XS] = { 4, 16, 64, 0, MM_SYM8, MM_ONE, cb_book_iq4, 0 },
    [DT_MXFP4] = { 4, 16, 0, 16, MM_SYM5, MM_EXPONENT, cb_book_fp4, 0 },
    [DT_TQ1_0] = { 2, 0, 64, 1, MM_SYM4, MM_CHUNK_D, NULL, 0 },
    [DT_TQ2_0] = { 2, 0, 64, 1, MM_SYM4, MM_CHUNK_D, NULL, 0 },
    [DT_IQ1_S] = { 2, 32, 64, 0, MM_MIN4, MM_BYTES, NULL, 3 },
    [DT_IQ1_M] = { 3, 32, 64, 32, MM_SYM16, MM_TWO, cb_book_iq1_m, 3 },
    [DT_IQ2_XXS] = { 3, 16, 64, 0, MM_SYM8, MM_ONE, cb_book_iq2, 3 },
    [DT_IQ2_XS] = { 3, 32, 64, 64, MM_WIDE16, MM_TWO, cb_book_iq2, 3 },
    [DT_IQ2_S] = { 3, 32, 64, 64, MM_WIDE16, MM_TWO, cb_book_iq2, 3 },
    [DT_IQ3_XXS] = { 4, 16, 64, 0, MM_SYM8, MM_ONE, cb_book_iq3_xxs, 2 },
    [DT_IQ3_S] = { 4, 16, 64, 16, MM_SYM5, MM_ONE, cb_book_iq3_s, 0 },
};

static inline int mm_has_min(enum mm_panel p)
{
    return p == MM_MIN4 || p == MM_MIN5;
}

/* 1: a scale for each 16 columns, not 32 */
static inline int mm_has_two(enum mm_panel p)
{
    return p == MM_SYM16 || p == MM_WIDE16 || p == MM_MIN16;
}

/* 1: signed bytes */
static inline int mm_is_signed(enum mm_panel p)
{
    return p == MM_SYM8;
}

/* What a chunk's f16 d and dmin are multiplied with */
static inline float mm_unit(enum dtype t)
{
    return 1.0f / (float)(1 << mm_layout[t].down);
}

static inline size_t mm_scale_bytes(enum dtype t, int n_blk)
{
    const size_t n = (size_t)(mm_layout[t].chunk_scale + n_blk * mm_layout[t].block_scale);
    return (n + 63) & ~(size_t)63;
}

/* Bytes of a block, with its share of the chunk's scales */
static inline size_t mm_block_bytes(enum dtype t)
{
    return (size_t)(64 * mm_layout[t].lines + mm_layout[t].block_scale +
                    mm_layout[t].chunk_scale / MM_CHUNK);
}

/* Offsets of a record of `width` tokens. */
static inline size_t mm_rec_bytes(int width)
{
    return (size_t)width * 52;
}

/* Numbers, also those after the last column, that make whole fours */
static inline size_t mm_fours(int n_in)
{
    return ((size_t)n_in + 3) & ~(size_t)3;
}

/* pack.c: rows[16] of the file, NULL past the last row -> a group of mm_group_bytes. fours: float
 * types four columns at a time */
size_t cb_mm_group_bytes(enum dtype t, int n_in);
void cb_mm_pack(enum dtype t, const uint8_t *const *rows, int n_in, int fours, void *dst);

#endif
