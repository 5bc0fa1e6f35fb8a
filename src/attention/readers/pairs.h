/* SPDX-License-Identifier: MIT */
/* pairs.h - adjacent layers whose older slots share directions (MiniCache, Liu et al. 2024). */
#ifndef PAIRS_H
#define PAIRS_H

#include "attention/attention.h"

int cb_pairs_open(struct attention *a); /* does nothing where the plan has no such layers */
void cb_pairs_close(struct attention *a);
size_t cb_pairs_bytes(const struct attention *a, int n_most); /* work space for n_most slots */

/* Is layer l one of a pair? Is it the earlier one, and has it merged slots? */
int cb_pairs_is(const struct attention *a, int l);
static inline int cb_pairs_restores(const struct attention *a, int l)
{
    return a->bank->store[l].merged > 0;
}

/* Adds the part of chunk c and returns 1; returns 0 if all slots of its layer have their rows. The
 * part's rows are valid until the next call. */
int cb_pairs_parts(struct attention *a, const struct chunk *c);
/* Call when layer l has attended: where it ends a pair, a prompt's slots are merged, or the
 * generated ones when there are enough. */
void cb_pairs_settle(struct attention *a, int l);
/* 1: the slots from n on are as they were stored */
int cb_pairs_can_cut(const struct attention *a, int n);

/* Bytes of rows that layer l does not hold after a prompt and n_gen tokens */
uint64_t cb_pairs_saved(const struct attention *a, int l, int n_prompt, int n_gen);
int cb_pairs_tail(const struct attention *a); /* generated tokens merged at a time; 0: none are */

#endif
