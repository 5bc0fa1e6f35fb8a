/* SPDX-License-Identifier: MIT */
/* tile_amx.h - for files that use AMX alone: the operations on tile registers. A register is named
 * by a literal number. The tests put a model in C in the place of this file
 * (tests/kit/tile_model.h).
 *
 * The compilers do not know what a tile instruction reads: hence the barriers. */
#ifndef TILE_AMX_H
#define TILE_AMX_H

#include <immintrin.h>
#include <stdint.h>

/* What LDTILECFG reads */
struct tile_shapes {
    uint8_t palette, start_row, unused[14];
    uint16_t row_bytes[16];
    uint8_t n_row[16];
};

/* From here to tile_release() the thread's tiles have these shapes, and are zero. */
static inline __attribute__((always_inline)) void tile_configure(const struct tile_shapes *s)
{
    __asm__ volatile("" : : "r"(s) : "memory");
    _tile_loadconfig(s);
}

#define tile_release() _tile_release()
#define tile_zero(t)   _tile_zero(t)
/* Rows `step` bytes apart -> the tile */
#define tile_load(t, from, step)                                                                   \
    do {                                                                                           \
        __asm__ volatile("" : : : "memory");                                                       \
        _tile_loadd(t, from, step);                                                                \
    } while (0)
#define tile_store(t, to, step) _tile_stored(t, to, step)
/* sum[m][n] += sum over k of a[m][k] * b[k / 4][n][k % 4], signed bytes in 32 bits */
#define tile_add_dots(sum, a, b) _tile_dpbssd(sum, a, b)

#endif
