/* SPDX-License-Identifier: MIT */
/* peak_amx.c - the peak of AMX's products of bytes, 16 x 16 sums of 64 at once. */
#include <immintrin.h>

#include "peak_read.h"

#ifndef TILE_OPS
#define TILE_OPS "cpu/matmul/tile_amx.h"
#endif
#include TILE_OPS

enum { ROWS = 16, BYTES = 64 };

/* Four sums hide the latency of one. */
static int64_t int8(int n)
{
    struct tile_shapes s = { .palette = 1 };

    for (int t = 0; t < 6; t++) {
        s.row_bytes[t] = BYTES;
        s.n_row[t] = ROWS;
    }
    tile_configure(&s); /* all are zero */
    for (int i = 0; i < n; i++) {
        tile_add_dots(0, 4, 5);
        tile_add_dots(1, 4, 5);
        tile_add_dots(2, 4, 5);
        tile_add_dots(3, 4, 5);
    }
    tile_release();
    return (int64_t)n * 4 * ROWS * ROWS * BYTES * 2;
}

PEAK_SPIN(f32, "v", __m512, 12, _mm512_set1_ps(0.5f), __m512, _mm512_set1_ps(0.5f), 16,
          _mm512_fmadd_ps)

const struct kern_peak cb_peak_amx = { read_all, read_blocks, f32, NULL, int8 };
