/* SPDX-License-Identifier: MIT */
/* passing.h - prompts of which the layers compute fewer and fewer tokens. */
#ifndef PASSING_H
#define PASSING_H

#include "attention.h"

/* Does a layer of the plan leave tokens of a prompt out of later layers? */
static inline int cb_passing_is(const struct attention *a)
{
    return a->pass != NULL;
}

int cb_passing_open(struct attention *a); /* does nothing where the plan has no such layer */
void cb_passing_close(struct attention *a);
size_t cb_passing_bytes(const struct attention *a, int n_feed);
/* Call after cb_attend_end() of a prompt of which layer l has computed n tokens: those that later
 * layers compute -> *row, ascending numbers among the n; their count, n if all. */
int cb_passing_choose(struct attention *a, int l, int n, const int **row);

#endif
