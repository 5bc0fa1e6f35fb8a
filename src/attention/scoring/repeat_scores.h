/* SPDX-License-Identifier: MIT */
/* repeat_scores.h - scores of a prompt's slots by how much the model attends to them while it
 * repeats the prompt (KVzip, Kim et al. 2025, section 3.2). The engine feeds the repetition piece
 * by piece (engine/prompt_repeat.c) and takes its keys and values back. */
#ifndef REPEAT_SCORES_H
#define REPEAT_SCORES_H

#include "attention/attention.h"

int cb_prompt_repeat_open(struct attention *a); /* does nothing where the plan repeats no prompt */
void cb_prompt_repeat_close(struct attention *a);
size_t cb_prompt_repeat_bytes(const struct attention *a);
/* Chunk c of a feed that repeats the slots from..to-1 has attended: their scores go to column 0. */
int cb_prompt_repeat_chunk(struct attention *a, const struct chunk *c);
/* The scores of layer l, which lie in its columns */
void cb_prompt_repeat_scores(struct attention *a, int l, struct scores *out);

#endif
