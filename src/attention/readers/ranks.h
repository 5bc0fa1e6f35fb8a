/* SPDX-License-Identifier: MIT */
/* ranks.h - attention to any slots at the positions of their ranks, as if they were adjacent. */
#ifndef RANKS_H
#define RANKS_H

#include "attention/attention.h"

static inline int cb_ranks_is(const struct attention *a, int l)
{
    return a->plan[l].rolling == ROLL_RANKS;
}

int cb_ranks_open(struct attention *a); /* does nothing where the plan has no such layer */
void cb_ranks_close(struct attention *a);
size_t cb_ranks_bytes(const struct attention *a, int n_most); /* work space, n_most slots */
/* Adds the part of chunk c and returns 1; returns 0 if all slots lie at their positions. The part's
 * keys are valid until the next call. */
int cb_ranks_parts(struct attention *a, const struct chunk *c);

#endif
