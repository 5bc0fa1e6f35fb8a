/* SPDX-License-Identifier: MIT */
/* planes.c - the second plane of a key: which of the 2^n parts of its sketch's step it lies in. */
#include "planes.h"

/* The channel's code in the first plane */
static int first_code(int bits, int hd, const uint8_t *block, int token, int channel)
{
    int shift;
    const size_t at = cb_sketch_at(bits, hd, token, channel, &shift);

    return block[(size_t)hd * 4 + at] >> shift & ((1 << bits) - 1);
}

/* Part of a step, counted from half a step below the code; those beyond the ends get the last */
static int part_of(float steps, int code, int n_part)
{
    const float y = (steps - (float)code + 0.5f) * (float)n_part;

    return !(y > 0) ? 0 : y >= (float)n_part ? n_part - 1 : (int)y;
}

static void add_bits(uint8_t *to, int x, int shift)
{
    *to = (uint8_t)(*to | x << shift);
}

void cb_planes_put(int bits, int hd, const float *x, int token, const float *step, const float *min,
                   const uint8_t *block, uint8_t *row)
{
    const int n_part = 1 << (8 - bits);

    memset(row, 0, cb_planes_row_bytes(bits, hd));
    for (int c = 0; c < hd; c++) {
        uint8_t *to = row + (size_t)(c / 16) * cb_planes_row_bytes(bits, 16);
        const int code = first_code(bits, hd, block, token, c);
        const int rest = step[c] > 0 ? part_of((x[c] - min[c]) / step[c], code, n_part) : 0;
        add_bits(to + c % 16 / 8 * 4 + c % 4, rest & 15, c / 4 % 2 * 4);
        if (bits == 2)
            add_bits(to + 8 + c % 4, rest >> 4, c / 4 % 4 * 2);
    }
}

void cb_planes_get(int bits, int hd, const uint8_t *block, int token, const uint8_t *row,
                   uint16_t *y)
{
    const uint8_t *first = cb_planes_first(bits, hd, block, token);
    const float unit = cb_planes_step(bits), middle = cb_planes_middle(bits);
    float step[SKETCH_MAX_HD], min[SKETCH_MAX_HD];
    int8_t code[16];

    cb_sketch_steps(hd, block, step, min);
    for (int c = 0; c < hd; c++) {
        if (c % 16 == 0)
            cb_planes_codes(bits, first + c / 16 * 64 * bits,
                            row + (size_t)(c / 16) * cb_planes_row_bytes(bits, 16), code);
        y[c] = cb_f32_to_f16(min[c] + ((float)code[c % 16] + middle) * (step[c] * unit));
    }
}
