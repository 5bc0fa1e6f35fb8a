/* SPDX-License-Identifier: MIT */
/* block_patterns.h - blocks and columns that the query heads of a chunk read by MInference's
 * patterns. */
#ifndef BLOCK_PATTERNS_H
#define BLOCK_PATTERNS_H

#include "attention/attention.h"

struct block_patterns;

int cb_block_patterns_open(const struct attention *a, void *state, const struct block_plan *plan,
                           struct block_patterns **out);

/* Call before the first chunk of a prompt goes through a layer. */
void cb_block_patterns_begin(struct block_patterns *p);
/* Fills b->reads [n_head][n_row][n_col] for chunk c, whose keys are stored. */
void cb_block_patterns_choose(struct attention *a, struct block_patterns *p, const struct chunk *c,
                              const struct attn_blocks *b, uint8_t *reads);
/* The columns outside the blocks that head h's queries in row r read, ascending -> count */
int cb_block_patterns_columns(const struct block_patterns *p, int h, int r, const int32_t **idx);

#endif
