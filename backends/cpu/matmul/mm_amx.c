/* SPDX-License-Identifier: MIT */
/* mm_amx.c - panels of 32 rows of weights times tiles of 16 tokens, by the tile registers of AMX. A
 * line of a panel is 4 columns of 16 rows, which is the form in which TDPBSSD reads its second
 * operand; a record's codes are the first one. Tiles make the integer sums of a block, 16 tokens x
 * 16 rows; vectors scale them while the next block's are made, with the operations of mm_avx512.c
 * in the same order, so the bits are the same. */
#include <immintrin.h>
#include <string.h>

#include "kern_mm.h"
#include "mm_dot_avx512.h"

#define MM_GROUPS 1
#include "mm_table.h"

#include "mm_block_avx512.h"

#ifndef TILE_OPS
#define TILE_OPS "cpu/matmul/tile_amx.h"
#endif
#include TILE_OPS

enum { TOK = MM_MANY_TILE, PANEL_ROWS = 32, LINE = 4 * PANEL_ROWS };

/* Registers: sums of two blocks in turn, or of both halves of one; the operands of even and of odd
 * blocks; those of half a block. */
#define SUM_0  0
#define SUM_1  1
#define X_EVEN 2
#define X_ODD  3
#define W_EVEN 4
#define W_ODD  5
#define X_HALF 6
#define W_HALF 7
#define N_TILE 8
#define SUMS   (TOK * MM_ROWS) /* of a tile */

/* For tiles of `width` tokens */
static void configure(int width)
{
    static const uint8_t row_bytes[N_TILE] = { 64, 64, 32, 32, 64, 64, 16, 64 };
    static const uint8_t lines[N_TILE] = { 0, 0, 0, 0, 8, 8, 0, 4 }; /* 0: a row for each token */
    struct tile_shapes s = { .palette = 1 };

    for (int t = 0; t < N_TILE; t++) {
        s.row_bytes[t] = row_bytes[t];
        s.n_row[t] = lines[t] ? lines[t] : (uint8_t)width;
    }
    tile_configure(&s);
}

/* 32 columns of 16 rows, w, times the codes of a tile of tokens, x -> sum[width][16]; with a scale
 * for each 16 columns the sums of the second half follow at sum + SUMS. */
INLINE void products(enum mm_panel kind, int odd, const uint8_t *w, const uint8_t *x, int32_t *sum)
{
    if (mm_has_two(kind)) {
        tile_zero(SUM_0);
        tile_load(X_HALF, x, 32);
        tile_load(W_HALF, w, LINE);
        tile_add_dots(SUM_0, X_HALF, W_HALF);
        tile_store(SUM_0, sum, 64);
        tile_zero(SUM_1);
        tile_load(X_HALF, x + 16, 32);
        tile_load(W_HALF, w + 4 * LINE, LINE);
        tile_add_dots(SUM_1, X_HALF, W_HALF);
        tile_store(SUM_1, sum + SUMS, 64);
    } else if (odd) {
        tile_zero(SUM_1);
        tile_load(X_ODD, x, 32);
        tile_load(W_ODD, w, LINE);
        tile_add_dots(SUM_1, X_ODD, W_ODD);
        tile_store(SUM_1, sum, 64);
    } else {
        tile_zero(SUM_0);
        tile_load(X_EVEN, x, 32);
        tile_load(W_EVEN, w, LINE);
        tile_add_dots(SUM_0, X_EVEN, W_EVEN);
        tile_store(SUM_0, sum, 64);
    }
}

/* What store_scales() wrote, of 16 rows */
INLINE void load_scales(enum mm_panel kind, const uint8_t *p, struct scales *s)
{
    s->s[0] = _mm512_loadu_ps(p);
    if (mm_has_two(kind))
        s->s[1] = _mm512_loadu_ps(p + LINE);
    if (mm_has_min(kind))
        s->m[0] = _mm512_loadu_ps(p + LINE);
    if (kind == MM_MIN16) {
        s->m[0] = _mm512_loadu_ps(p + 2 * LINE);
        s->m[1] = _mm512_loadu_ps(p + 3 * LINE);
    }
}

/* acc + the sums of a block times token i, scaled; rec: its record of n tokens */
INLINE __m512 add_token(enum mm_panel kind, int n, const struct scales *s, const uint8_t *rec,
                        const int32_t *sum, int i, __m512 acc)
{
    const __m512i v = load((const uint8_t *)(sum + MM_ROWS * i));
    const __m512 d = bcast_f(rec + 32 * n + 4 * i);

    if (mm_has_two(kind))
        acc = add_block16(kind, acc, v, load((const uint8_t *)(sum + SUMS + MM_ROWS * i)), s,
                          rec + 44 * n + 4 * i, n, d);
    else
        acc = add_block(acc, v, s->s[0], d);
    if (mm_has_min(kind))
        acc = _mm512_fmadd_ps(s->m[0], bcast_f(rec + 36 * n + 4 * i), acc);
    return acc;
}

INLINE void next_products(enum mm_panel kind, int b, const uint8_t *w, const uint8_t *x,
                          int32_t *sum)
{
    if (b & 1)
        products(kind, 1, w, x, sum);
    else
        products(kind, 0, w, x, sum);
}

/* acc[n] += n_blk blocks of 16 rows times a tile of n tokens; n is TOK, and acc in registers, or
 * less
 */
INLINE void add_blocks(enum mm_panel kind, int n, const uint8_t *w, const uint8_t *x, int n_blk,
                       __m512 acc[TOK])
{
    _Alignas(64) int32_t sum[2][2 * SUMS];

    next_products(kind, 0, w, x, sum[0]);
    for (int b = 0; b < n_blk; b++) {
        const uint8_t *const scale = w + 8 * LINE, *const rec = x;
        const int32_t *const v = sum[b & 1];
        struct scales s;

        w += panel_block(kind);
        x += mm_rec_bytes(n);
        if (b + 1 < n_blk)
            next_products(kind, b + 1, w, x, sum[(b + 1) & 1]);
        load_scales(kind, scale, &s);
        if (n == TOK) {
#pragma GCC unroll 16
            for (int i = 0; i < TOK; i++)
                acc[i] = add_token(kind, TOK, &s, rec, v, i, acc[i]);
        } else {
#pragma GCC unroll 1
            for (int i = 0; i < n; i++)
                acc[i] = add_token(kind, n, &s, rec, v, i, acc[i]);
        }
    }
}

/* out[n][32] += n_blk blocks of 16 rows times a tile of n tokens */
INLINE void add_chunk(enum mm_panel kind, int n, const uint8_t *w, const uint8_t *x, int n_blk,
                      float *out)
{
    __m512 acc[TOK];

#pragma GCC unroll 16
    for (int i = 0; i < TOK; i++)
        acc[i] = i < n ? _mm512_loadu_ps(out + PANEL_ROWS * i) : _mm512_setzero_ps();
    add_blocks(kind, n, w, x, n_blk, acc);
#pragma GCC unroll 16
    for (int i = 0; i < TOK; i++)
        if (i < n)
            _mm512_storeu_ps(out + PANEL_ROWS * i, acc[i]);
}

/* n_tile tiles of n tokens. A chunk of the panel stays in L1 while the tiles stream by. */
INLINE void add_tiles(enum mm_panel kind, int n, const uint8_t *panel, const uint8_t *x, int n_in,
                      int n_tile, float *out)
{
    const int n_blk = n_in / 32;
    const size_t tile = (size_t)n_blk * mm_rec_bytes(n);

    for (int b = 0; b < n_blk; b += MM_CHUNK) {
        const int nb = n_blk - b < MM_CHUNK ? n_blk - b : MM_CHUNK;
        const uint8_t *w = panel + (size_t)b * panel_block(kind);

        for (int t = 0; t < n_tile; t++)
            for (int half = 0; half < 2; half++)
                add_chunk(kind, n, w + 64 * half,
                          x + (size_t)t * tile + (size_t)b * mm_rec_bytes(n), nb,
                          out + t * TOK * PANEL_ROWS + MM_ROWS * half);
    }
}

INLINE void multiply(enum mm_panel kind, const uint8_t *panel, const uint8_t *x, int n_in,
                     int n_tok, float *out)
{
    const int n_tile = n_tok / TOK, rest = n_tok % TOK, done = n_tile * TOK;

    memset(out, 0, (size_t)n_tok * PANEL_ROWS * sizeof *out);
    if (n_tile) {
        configure(TOK);
        add_tiles(kind, TOK, panel, x, n_in, n_tile, out);
    }
    if (rest) {
        configure(rest);
        add_tiles(kind, rest, panel, x + (size_t)(n_in / 32) * mm_rec_bytes(done), n_in, 1,
                  out + done * PANEL_ROWS);
    }
    tile_release();
}

#define MANY_UNPACK(type)                                                                          \
    static void unpack_##type(const void *const *w, int n_in, void *panel)                         \
    {                                                                                              \
        unpack_to(DT_##type, 0, w, n_in, panel);                                                   \
    }
#define MANY_MULTIPLY(kind)                                                                        \
    static void multiply_##kind(const void *panel, const void *x, int n_in, int n_tok, float *out) \
    {                                                                                              \
        multiply(kind, panel, x, n_in, n_tok, out);                                                \
    }
#define MANY_ROW(kind) [kind] = multiply_##kind,

MM_QUANTS(MANY_UNPACK)
MM_KINDS(MANY_MULTIPLY)

const struct kern_many cb_many_amx = {
    .unpack = { MM_QUANTS(MM_UNPACK_ROW) },
    .multiply = { MM_KINDS(MANY_ROW) },
};
