/* SPDX-License-Identifier: MIT */
/* blocks.h - random blocks of quantised weights with steps of a chosen size. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "gguf/dtype.h"

/* Writes the step, and the step of minima where t has one, into a block of random codes. */
void cb_block_steps(enum dtype t, uint8_t *block, float d, float dmin);

/* The step that gives random codes a deviation of about 1 */
float cb_block_unit(enum dtype t);

#endif
