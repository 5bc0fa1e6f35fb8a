/* SPDX-License-Identifier: MIT */
/* far_blocks.h - attention to the last tokens at their distances, and to the first ones and to
 * chosen blocks of the others as if all of them were at one distance (InfLLM, Xiao et al. 2024). */
#ifndef FAR_BLOCKS_H
#define FAR_BLOCKS_H

#include "attention/attention.h"

static inline int cb_far_is(const struct attention *a, int l)
{
    return a->plan[l].far.block > 0;
}

int cb_far_open(struct attention *a); /* does nothing where the plan has no such layer */
void cb_far_close(struct attention *a);
size_t cb_far_bytes(const struct attention *a, int n_most); /* work space for n_most slots */
/* Call when the slots may be those of another text. */
void cb_far_clear(struct attention *a);
/* Call after layer l was filled from a file. */
int cb_far_check(const struct attention *a, int l);

/* The most tokens that go through layer l at once from the i-th of a prompt on: those of a chunk
 * choose together, the prompt's last one alone. */
int cb_far_room(const struct attention *a, int l, int i);
/* Adds the parts of chunk c and returns 1; returns 0 if its layer has no such plan, or if all of
 * its queries see everything at its distance. */
int cb_far_parts(struct attention *a, const struct chunk *c);
/* Call after chunk c has attended, with the parts' log-sum-exp [c->n][n_head]: adds the weights of
 * near slots to the columns, and turns the keys that no later query sees at their distances. */
int cb_far_attended(struct attention *a, const struct chunk *c, const float *lse);

/* Blocks that a token chooses from when n slots come before it, and the *k slots that it reads of
 * a KV head, its own among them */
int cb_far_blocks(const struct attention *a, int l, int n, int *k);
/* Bytes that a decoded token reads in layer l, which then holds n slots */
uint64_t cb_far_read(const struct attention *a, int l, int n);

#endif
