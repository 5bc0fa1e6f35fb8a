/* SPDX-License-Identifier: MIT */
/* dtype_lattice.c - opens blocks of IQ1_S to IQ3_S, whose weights are points of a lattice, eight or
 * four weights a point. Codes are places in a list of magnitudes; those of negative weights follow
 * those of positive ones. */
#include <string.h>

#include "dtype_coded.h"
#include "lattice.h"

static uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Eight weights, three magnitudes; bit i of `negative` is the sign of weight i */
static void open_eight(unsigned point, unsigned negative, uint8_t *code)
{
    for (int i = 0; i < 8; i++)
        code[i] = (uint8_t)((point >> 2 * i & 3) + 3 * (negative >> i & 1));
}

/* Four weights, eight magnitudes */
static void open_four(unsigned point, unsigned negative, uint8_t *code)
{
    for (int i = 0; i < 4; i++)
        code[i] = (uint8_t)((point >> 3 * i & 7) + 8 * (negative >> i & 1));
}

/* Seven signs -> eight, of which an even number is negative */
static unsigned eight_signs(unsigned seven)
{
    seven &= 127;
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

/* Nibble j of p as an odd number */
static int8_t odd_nibble(const uint8_t *p, int j)
{
    return (int8_t)(2 * (p[j / 2] >> 4 * (j & 1) & 15) + 1);
}

/* f16 d; for each 32 weights 4 bytes of points, then a word: four times 7 signs, 4 bits of scale */
void cb_open_iq2_xxs(const uint8_t *p, struct opened *b)
{
    b->d = cb_load16(p);
    p += 2;
    for (int k = 0; k < 32; k++) {
        const uint8_t *at = p + k / 4 * 8;
        const uint32_t signs = load32(at + 4);

        open_eight(cb_lattice_iq2_xxs[at[k % 4]], eight_signs(signs >> 7 * (k % 4)),
                   b->code + 8 * k);
        b->scale[k / 2] = (int8_t)(2 * (signs >> 28) + 1);
    }
}

/* f16 d, 32 words of 9 bits of point and 7 signs, nibbles of scales */
void cb_open_iq2_xs(const uint8_t *p, struct opened *b)
{
    b->d = cb_load16(p);
    for (int k = 0; k < 32; k++) {
        const unsigned v = cb_load16(p + 2 + 2 * k);
        open_eight(cb_lattice_iq2_xs[v & 511], eight_signs(v >> 9), b->code + 8 * k);
    }
    for (int j = 0; j < 16; j++)
        b->scale[j] = odd_nibble(p + 66, j);
}

/* f16 d, 32 low bytes of points, 32 bytes of signs, 32 bit pairs of points, nibbles of scales */
void cb_open_iq2_s(const uint8_t *p, struct opened *b)
{
    b->d = cb_load16(p);
    p += 2;
    for (int k = 0; k < 32; k++)
        open_eight(cb_lattice_iq2_s[p[k] | (p[64 + k / 4] >> 2 * (k % 4) & 3) << 8], p[32 + k],
                   b->code + 8 * k);
    for (int j = 0; j < 16; j++)
        b->scale[j] = odd_nibble(p + 72, j);
}

/* f16 d, 64 bytes of points, eight words as in IQ2_XXS */
void cb_open_iq3_xxs(const uint8_t *p, struct opened *b)
{
    b->d = cb_load16(p);
    p += 2;
    for (int k = 0; k < 64; k++) {
        const uint32_t signs = load32(p + 64 + k / 8 * 4);

        open_four(cb_lattice_iq3_xxs[p[k]], eight_signs(signs >> 7 * (k / 2 % 4)) >> 4 * (k & 1),
                  b->code + 4 * k);
        b->scale[k / 4] = (int8_t)(2 * (signs >> 28) + 1);
    }
}

/* f16 d, 64 low bytes of points, 64 high bits, 32 bytes of signs, nibbles of scales */
void cb_open_iq3_s(const uint8_t *p, struct opened *b)
{
    b->d = cb_load16(p);
    p += 2;
    for (int k = 0; k < 64; k++)
        open_four(cb_lattice_iq3_s[p[k] | (p[64 + k / 8] >> k % 8 & 1) << 8],
                  p[72 + k / 2] >> 4 * (k & 1), b->code + 4 * k);
    for (int j = 0; j < 16; j++)
        b->scale[j] = odd_nibble(p + 104, j / 2);
}

/* f16 d, 32 low bytes of points, for each 32 weights a word: four times 3 bits of points, 3 bits of
 * scale, the sign of a shift. A weight is its point's -1, 0 or 1, shifted by an eighth: 0, 1 or 2
 * eight times, less 8 -+ 1, in eighths. */
void cb_open_iq1_s(const uint8_t *p, struct opened *b)
{
    b->d = b->dmin = cb_load16(p);
    for (int k = 0; k < 32; k++) {
        const unsigned high = cb_load16(p + 34 + k / 4 * 2);
        const int scale = 2 * (int)(high >> 12 & 7) + 1;

        open_eight(cb_lattice_iq1[p[2 + k] | (high >> 3 * (k % 4) & 7) << 8], 0, b->code + 8 * k);
        b->scale[k / 2] = (int8_t)(8 * scale);
        b->min[k / 2] = (uint8_t)(scale * (high >> 15 ? 9 : 7));
    }
}

/* 32 low bytes of points, 32 nibbles: 3 bits of point and the sign of its shift; four words: four
 * times 3 bits of scale, 4 bits of d, the lowest first. A shift belongs to eight weights here, so
 * shifted weights have codes of their own. */
void cb_open_iq1_m(const uint8_t *p, struct opened *b)
{
    b->d = 0;
    for (int k = 0; k < 32; k++) {
        const unsigned high = p[32 + k / 2] >> 4 * (k & 1);
        open_eight(cb_lattice_iq1[p[k] | (high & 7) << 8], high & 8 ? 255 : 0, b->code + 8 * k);
    }
    for (int j = 0; j < 16; j++) {
        const unsigned v = cb_load16(p + 48 + j / 4 * 2);
        b->scale[j] = (int8_t)(2 * (v >> 3 * (j % 4) & 7) + 1);
        b->d |= (uint16_t)(v >> 12 << j / 4 * 4);
    }
}
