/* SPDX-License-Identifier: MIT */
/* kivi.h - groups of numbers on 2 or 4 bits, in plain C. Kernels read groups of KIVI_GROUP, which
 * are called blocks. */
#ifndef KIVI_H
#define KIVI_H

#include <string.h>

#include "device.h"

enum { CB_KIVI_MAX_HD = 256, CB_KIVI_MAX_BLOCK = 4 + 4 * 4 };

static inline size_t cb_kivi_block_bytes(int bits)
{
    return 4 + 4 * (size_t)bits;
}

static inline size_t cb_kivi_group_bytes(int bits, int group)
{
    return 4 + (size_t)group / 8 * (size_t)bits;
}

/* Numbers that share a step, of keys (v = 0) or values */
static inline int cb_kivi_group(const struct kv_kivi *q, int v)
{
    const int group = v ? q->group_v : q->group_k;
    return group ? group : KIVI_GROUP;
}

/* The quantised row of a slot's key (v = 0) or value; -1: it is a plain row */
static inline int cb_kivi_row_of(const struct kv_kivi *q, int v, int slot)
{
    const int lo = v ? q->lo_v : q->lo_k;
    const int32_t *row = v ? q->row_v : q->row_k;

    if (slot < lo || slot >= (v ? q->n_v : q->n_k))
        return -1;
    return row ? row[slot] : slot - lo;
}

/* Slots of from..to-1 that are quantised */
static inline int cb_kivi_among(const struct kv_kivi *q, int v, int from, int to)
{
    const int lo = v ? q->lo_v : q->lo_k, n = v ? q->n_v : q->n_k;

    from = from > lo ? from : lo;
    to = to < n ? to : n;
    return to > from ? to - from : 0;
}

/* 1: keys are in two planes, so that their slots are rows lo_k on */
static inline int cb_kivi_in_planes(const struct kv_kivi *q)
{
    return q->bits_k == KIVI_PLANES;
}

/* Writes the step and the minimum as halves, then the codes: (x - minimum) / step to the nearest
 * whole number, ties to even. x[group] lies at a stride in floats. */
void cb_kivi_encode(int bits, int group, const float *x, int stride, void *at);
float cb_kivi_decode(int bits, const void *at, int i); /* one of the group */

/* The i-th KIVI_GROUP numbers of a group -> a block */
static inline void cb_kivi_take(int bits, const uint8_t *at, int i, uint8_t *block)
{
    memcpy(block, at, 4);
    memcpy(block + 4, at + 4 + 4 * i * bits, 4 * (size_t)bits);
}

/* The key (v = 0) or value in a quantised row -> y[hd] */
void cb_kivi_get(const struct kv_kivi *q, int v, int row, int hd, float *y);
/* Where a key in planes lies: its block, and its row of the second plane; returns its place in the
 * block. */
int cb_kivi_planes_at(const struct kv_kivi *q, int row, int hd, const uint8_t **block,
                      const uint8_t **rest);

#endif
