/* SPDX-License-Identifier: MIT */
/* far_blocks.h - attention to the last tokens at their distances, and to the first ones and to
 * chosen blocks of the others as if all of them were at one distance (InfLLM, Xiao et al. 2024). */
#ifndef FAR_BLOCKS_H
#define FAR_BLOCKS_H

#include "attention/attention.h"

/* Bytes that a decoded token reads in layer l, which then holds n slots */
uint64_t cb_far_read(const struct attention *a, int l, int n);

#endif
