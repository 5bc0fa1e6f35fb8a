/* SPDX-License-Identifier: MIT */
/* kivi.h - blocks of 32 numbers on 2 or 4 bits, in plain C. */
#ifndef KIVI_H
#define KIVI_H

#include "device.h"

enum { CB_KIVI_MAX_HD = 256 };

static inline size_t cb_kivi_block_bytes(int bits)
{
    return 4 + 4 * (size_t)bits;
}

/* Writes the step and the minimum as halves, then the codes: (x - minimum) / step to the nearest
 * whole number, ties to even. x[32] lies at a stride in floats. */
void cb_kivi_encode(int bits, const float *x, int stride, void *block);
float cb_kivi_decode(int bits, const void *block, int i); /* one of the 32 */

/* The key (v = 0) or value of a quantised slot -> y[hd] */
void cb_kivi_row(const struct kv_kivi *q, int v, int slot, int hd, float *y);

#endif
