/* SPDX-License-Identifier: MIT */
/* tile_model.h - the tile registers of AMX as plain C, in the place of tile_amx.h: what the
 * manual says of LDTILECFG, TILELOADD, TDPBSSD, TILESTORED, TILEZERO and TILERELEASE. What would be
 * an invalid instruction ends the program. */
#ifndef TILE_MODEL_H
#define TILE_MODEL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILE_ROWS = 16, TILE_BYTES = 64, TILES = 8 };

struct tile_shapes {
    uint8_t palette, start_row, unused[14];
    uint16_t row_bytes[16];
    uint8_t n_row[16];
};

struct tile {
    int n_row, row_bytes;
    int8_t row[TILE_ROWS][TILE_BYTES];
};

static _Thread_local struct {
    int on;
    struct tile tile[TILES];
} tiles;

#define TILE_MUST(x) ((x) ? (void)0 : tile_invalid(#x))

static inline void tile_invalid(const char *what)
{
    fprintf(stderr, "tile_model: invalid instruction: not %s\n", what);
    abort();
}

static inline struct tile *tile_of(int t)
{
    TILE_MUST(tiles.on);
    TILE_MUST(t >= 0 && t < TILES && tiles.tile[t].n_row);
    return &tiles.tile[t];
}

static inline void tile_configure(const struct tile_shapes *s)
{
    _Static_assert(sizeof *s == 64, "LDTILECFG reads 64 bytes");
    TILE_MUST(s->palette == 1 && !s->start_row);
    for (int i = 0; i < 14; i++)
        TILE_MUST(!s->unused[i]);
    memset(&tiles, 0, sizeof tiles);
    tiles.on = 1;
    for (int t = 0; t < 16; t++) {
        TILE_MUST(t < TILES || (!s->n_row[t] && !s->row_bytes[t]));
        TILE_MUST(s->n_row[t] <= TILE_ROWS && s->row_bytes[t] <= TILE_BYTES);
        TILE_MUST(!s->n_row[t] == !s->row_bytes[t]);
        if (t < TILES) {
            tiles.tile[t].n_row = s->n_row[t];
            tiles.tile[t].row_bytes = s->row_bytes[t];
        }
    }
}

static inline void tile_release(void)
{
    memset(&tiles, 0, sizeof tiles);
}

static inline void tile_zero(int t)
{
    memset(tile_of(t)->row, 0, sizeof tile_of(t)->row);
}

static inline void tile_load(int t, const void *from, size_t step)
{
    struct tile *to = tile_of(t);

    memset(to->row, 0, sizeof to->row);
    for (int r = 0; r < to->n_row; r++)
        memcpy(to->row[r], (const char *)from + (size_t)r * step, (size_t)to->row_bytes);
}

static inline void tile_store(int t, void *to, size_t step)
{
    const struct tile *from = tile_of(t);

    for (int r = 0; r < from->n_row; r++)
        memcpy((char *)to + (size_t)r * step, from->row[r], (size_t)from->row_bytes);
}

static inline void tile_add_dots(int sum, int a, int b)
{
    struct tile *s = tile_of(sum);
    const struct tile *x = tile_of(a), *w = tile_of(b);

    TILE_MUST(sum != a && sum != b && a != b);
    TILE_MUST(s->n_row == x->n_row && s->row_bytes == w->row_bytes);
    TILE_MUST(!(x->row_bytes % 4) && !(w->row_bytes % 4) && x->row_bytes / 4 == w->n_row);
    for (int m = 0; m < s->n_row; m++)
        for (int n = 0; n < s->row_bytes / 4; n++) {
            int32_t all;
            memcpy(&all, &s->row[m][4 * n], sizeof all);
            for (int k = 0; k < x->row_bytes; k++)
                all += x->row[m][k] * w->row[k / 4][4 * n + k % 4];
            memcpy(&s->row[m][4 * n], &all, sizeof all);
        }
}

#endif
