/* SPDX-License-Identifier: MIT */
/* mm_amx.c - panels of 32 rows of weights times tiles of 16 tokens, by the tile registers of AMX. A
 * line of a panel is 4 columns of 16 rows, which is the form in which TDPBSSD reads its second
 * operand; a record's codes are the first one. Tiles make the integer sums of a block, 16 tokens x
 * 16 rows; vectors scale them while the next block's are made, with the operations of mm_avx512.c
 * in the same order, so the bits are the same. Batches of decoded tokens multiply packed weights,
 * which a chunk at a time are unpacked to such lines. */
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

/* The operands of a block: lines of 4 columns of 16 rows, w_step bytes apart, and the codes of
 * tokens, x_step bytes apart */
struct operands {
    const uint8_t *w, *x;
    size_t w_step, x_step;
};

/* Half of a block with a scale for each 16 columns -> sum[width][16] */
#define HALF_PRODUCTS(t, half, o, sum)                                                             \
    do {                                                                                           \
        tile_zero(t);                                                                              \
        tile_load(X_HALF, (o)->x + 16 * (half), (o)->x_step);                                      \
        tile_load(W_HALF, (o)->w + 4 * (half) * (o)->w_step, (o)->w_step);                         \
        tile_add_dots(t, X_HALF, W_HALF);                                                          \
        tile_store(t, sum, 64);                                                                    \
    } while (0)
#define BLOCK_PRODUCTS(t, x_tile, w_tile, o, sum)                                                  \
    do {                                                                                           \
        tile_zero(t);                                                                              \
        tile_load(x_tile, (o)->x, (o)->x_step);                                                    \
        tile_load(w_tile, (o)->w, (o)->w_step);                                                    \
        tile_add_dots(t, x_tile, w_tile);                                                          \
        tile_store(t, sum, 64);                                                                    \
    } while (0)

/* 32 columns of 16 rows times the codes of a tile of tokens -> sum[width][16]; with a scale for
 * each 16 columns the sums of the second half follow at sum + SUMS. */
INLINE void products(enum mm_panel kind, int odd, const struct operands *o, int32_t *sum)
{
    if (mm_has_two(kind)) {
        HALF_PRODUCTS(SUM_0, 0, o, sum);
        HALF_PRODUCTS(SUM_1, 1, o, sum + SUMS);
    } else if (odd) {
        BLOCK_PRODUCTS(SUM_1, X_ODD, W_ODD, o, sum);
    } else {
        BLOCK_PRODUCTS(SUM_0, X_EVEN, W_EVEN, o, sum);
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

/* acc + a block's sums of token i, scaled; rec: the record of n tokens; second: of the second 16
 * columns, where they have a scale of their own */
INLINE __m512 add_sums(enum mm_panel kind, int n, const struct scales *s, const uint8_t *rec, int i,
                       __m512i sum, __m512i second, __m512 acc)
{
    const __m512 d = bcast_f(rec + 32 * n + 4 * i);

    if (mm_has_two(kind))
        acc = add_block16(kind, acc, sum, second, s, rec + 44 * n + 4 * i, n, d);
    else
        acc = add_block(acc, sum, s->s[0], d);
    if (mm_has_min(kind))
        acc = _mm512_fmadd_ps(s->m[0], bcast_f(rec + 36 * n + 4 * i), acc);
    return acc;
}

INLINE __m512i sums_of(const int32_t *sum, int i)
{
    return load((const uint8_t *)(sum + MM_ROWS * i));
}

INLINE __m512 add_token(enum mm_panel kind, int n, const struct scales *s, const uint8_t *rec,
                        const int32_t *sum, int i, __m512 acc)
{
    const __m512i second = mm_has_two(kind) ? sums_of(sum + SUMS, i) : _mm512_setzero_si512();

    return add_sums(kind, n, s, rec, i, sums_of(sum, i), second, acc);
}

INLINE void next_products(enum mm_panel kind, int b, const uint8_t *w, const uint8_t *x,
                          int32_t *sum)
{
    const struct operands o = { w, x, LINE, 32 };

    if (b & 1)
        products(kind, 1, &o, sum);
    else
        products(kind, 0, &o, sum);
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

/* ---- batches: up to 16 tokens, each of which has a record of its own ---- */

/* A chunk of one group */
struct open_chunk {
    uint8_t w[MM_CHUNK][8 * 64]; /* signed */
    struct scales s[MM_CHUNK];
};

INLINE void open_chunk(enum dtype t, const uint8_t *w, int n_blk, struct open_chunk *out)
{
    const __m512i zero = _mm512_set1_epi8((char)zero_of(t));
    const uint8_t *q = w + mm_scale_bytes(t, n_blk);
    struct block v;

    chunk_scales(t, w, &v.s);
    for (int b = 0; b < n_blk; b++) {
        prefetch(w + (size_t)b * mm_block_bytes(t), mm_layout[t].lines + 1);
        open_block(t, w, b, q, &v);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            _mm512_storeu_si512(out->w[b] + 64 * g, _mm512_sub_epi8(v.w[g], zero));
        out->s[b] = v.s;
        q += 64 * mm_layout[t].lines;
    }
}

/* Sums of a block's low and, of 16-bit tokens, high codes, which stand before them */
struct batch_sums {
    _Alignas(64) int32_t low[2 * SUMS], high[2 * SUMS];
};

INLINE void batch_products(enum mm_panel kind, int act16, int b, const uint8_t *w, const uint8_t *x,
                           struct batch_sums *sum)
{
    const struct operands low = { w, x + (act16 ? 32 : 0), 64, mm_rec_bytes(1 + act16) };
    const struct operands high = { w, x, 64, mm_rec_bytes(1 + act16) };

    if (act16) {
        products(kind, 0, &high, sum->high);
        products(kind, 1, &low, sum->low);
    } else if (b & 1) {
        products(kind, 1, &low, sum->low);
    } else {
        products(kind, 0, &low, sum->low);
    }
}

INLINE __m512i batch_sum(int act16, const struct batch_sums *sum, int at, int i)
{
    const __m512i low = sums_of(sum->low + at, i);

    return act16 ? _mm512_add_epi32(low, _mm512_slli_epi32(sums_of(sum->high + at, i), 8)) : low;
}

/* out[n_tok][16] += a block */
INLINE void add_batch(enum mm_panel kind, int act16, const struct scales *s, const uint8_t *x,
                      const struct batch_sums *sum, int n_tok, float *out)
{
    for (int i = 0; i < n_tok; i++, x += mm_rec_bytes(1 + act16)) {
        const __m512i second =
            mm_has_two(kind) ? batch_sum(act16, sum, SUMS, i) : _mm512_setzero_si512();
        const __m512 acc = _mm512_loadu_ps(out + MM_ROWS * i);

        _mm512_storeu_ps(out + MM_ROWS * i, add_sums(kind, 1 + act16, s, x, act16,
                                                     batch_sum(act16, sum, 0, i), second, acc));
    }
}

/* One packed group x n_tok tokens -> out[n_tok][16] */
INLINE void batch_group(enum dtype t, int act16, const uint8_t *w, const uint8_t *x, int n_in,
                        int n_tok, float *out)
{
    const enum mm_panel kind = mm_layout[t].panel;
    const size_t step = (size_t)n_tok * mm_rec_bytes(1 + act16); /* from block to block */
    struct batch_sums sum[2];
    struct open_chunk c;

    memset(out, 0, (size_t)n_tok * MM_ROWS * sizeof *out);
    for (int n_blk = n_in / 32; n_blk > 0; n_blk -= MM_CHUNK) {
        const int nb = n_blk < MM_CHUNK ? n_blk : MM_CHUNK;

        open_chunk(t, w, nb, &c);
        batch_products(kind, act16, 0, c.w[0], x, &sum[0]);
        for (int b = 0; b < nb; b++, x += step) {
            if (b + 1 < nb)
                batch_products(kind, act16, b + 1, c.w[b + 1], x + step, &sum[(b + 1) & 1]);
            add_batch(kind, act16, &c.s[b], x, &sum[b & 1], n_tok, out);
        }
        w += mm_scale_bytes(t, nb) + (size_t)(64 * nb * mm_layout[t].lines);
    }
}

INLINE void batch(enum dtype t, int act16, const uint8_t *w, size_t step, int n_group,
                  const uint8_t *x, int n_in, int n_tok, float *out)
{
    configure(n_tok);
    for (int k = 0; k < n_group; k++)
        batch_group(t, act16, w + (size_t)k * step, x, n_in, n_tok,
                    out + (size_t)k * (size_t)n_tok * MM_ROWS);
    tile_release();
}

/* ---- the table ---- */

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

#define MANY_BATCH_OF(name, type, act16)                                                           \
    static void name##_##type(MM_BATCH_ARGS)                                                       \
    {                                                                                              \
        batch(DT_##type, act16, w, step, n_group, x, n_in, n_tok, out);                            \
    }
#define MANY_BATCH(type)      MANY_BATCH_OF(batch8, type, 0) MANY_BATCH_OF(batch16, type, 1)
#define MANY_BATCH8_ROW(type) [DT_##type] = batch8_##type,

MM_QUANTS(MANY_UNPACK)
MM_KINDS(MANY_MULTIPLY)
MM_QUANTS(MANY_BATCH)

const struct kern_many cb_many_amx = {
    .unpack = { MM_QUANTS(MM_UNPACK_ROW) },
    .multiply = { MM_KINDS(MANY_ROW) },
    .batch = { { MM_QUANTS(MANY_BATCH8_ROW) }, { MM_QUANTS(MM_BATCH16_ROW) } },
};
