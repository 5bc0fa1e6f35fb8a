/* SPDX-License-Identifier: MIT */
/* dtype_coded.h - blocks that `quantize` does not write: codes that stand for numbers of a small
 * table, and a scale for each 16 weights. */
#ifndef DTYPE_CODED_H
#define DTYPE_CODED_H

#include "dtype.h"

/* A block of 32 or 256 weights. Weight j is d * unit * scale[j / 16] * book[code[j]], less
 * dmin * unit * min[j / 16] in Q2_K and IQ1_S. */
struct opened {
    uint16_t d, dmin; /* f16; MXFP4: d is the exponent of a power of two */
    int8_t scale[16];
    uint8_t min[16];
    uint8_t code[256];
};

struct coded {
    void (*open)(const uint8_t *block, struct opened *b);
    const int8_t *book; /* [16] */
    float unit;
};

/* The types from DT_ENCODED on; other rows are empty. */
extern const struct coded cb_coded[DT_COUNT];

/* Numbers of IQ4_NL and IQ4_XS; of MXFP4; of IQ2_XXS, IQ2_XS and IQ2_S; of IQ3_XXS; of IQ3_S; of
 * IQ1_M */
extern const int8_t cb_book_iq4[16], cb_book_fp4[16], cb_book_iq2[16], cb_book_iq3_xxs[16],
    cb_book_iq3_s[16], cb_book_iq1_m[16];

/* dtype_lattice.c */
void cb_open_iq1_s(const uint8_t *block, struct opened *b);
void cb_open_iq1_m(const uint8_t *block, struct opened *b);
void cb_open_iq2_xxs(const uint8_t *block, struct opened *b);
void cb_open_iq2_xs(const uint8_t *block, struct opened *b);
void cb_open_iq2_s(const uint8_t *block, struct opened *b);
void cb_open_iq3_xxs(const uint8_t *block, struct opened *b);
void cb_open_iq3_s(const uint8_t *block, struct opened *b);

/* Exponent of MXFP4 -> 2^(e - 128), the step of numbers that are stored twice as large */
float cb_e8m0_to_f32(unsigned e);

#endif
