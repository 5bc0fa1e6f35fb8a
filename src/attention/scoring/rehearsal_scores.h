/* SPDX-License-Identifier: MIT */
/* rehearsal_scores.h - scores of a prompt's slots by how much the model attends to them while it
 * repeats the prompt (KVzip, Kim et al. 2025, section 3.2). The engine feeds the repetition piece
 * by piece (engine/rehearsal.c) and takes its keys and values back. */
#ifndef REHEARSAL_SCORES_H
#define REHEARSAL_SCORES_H

#include "attention/attention.h"

int cb_rehearsal_open(struct attention *a); /* does nothing where the plan rehearses no prompt */
void cb_rehearsal_close(struct attention *a);
size_t cb_rehearsal_bytes(const struct attention *a);
/* Chunk c of a feed that repeats the slots from..to-1 has attended: their scores go to column 0. */
int cb_rehearsal_chunk(struct attention *a, const struct chunk *c);
/* The scores of layer l, which lie in its columns */
void cb_rehearsal_scores(struct attention *a, int l, struct scores *out);

#endif
