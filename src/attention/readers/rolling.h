/* SPDX-License-Identifier: MIT */
/* rolling.h - attention to first and last tokens, at rolling positions, which are those as if
 * nothing had been dropped between (StreamingLLM, Xiao et al. 2023, section 3.2), or at the true
 * ones. Where any slots are left, ranks.c makes the parts. */
#ifndef ROLLING_H
#define ROLLING_H

#include "attention/attention.h"

int cb_rolling_open(struct attention *a); /* does nothing where the plan has no such layer */
void cb_rolling_close(struct attention *a);
size_t cb_rolling_bytes(const struct attention *a);
/* Call before the parts of n queries are made. Unpacks the store where these queries cannot read
 * its rows as they lie. */
void cb_rolling_prepare(struct attention *a, int l, int n);
/* Adds the parts of chunk c and returns 1 if there is a gap between the two runs of slots, or if
 * its queries see the first tokens and a window; else returns 0. */
int cb_rolling_parts(struct attention *a, const struct chunk *c);
/* The chunk's queries from `from` on, the first turned back by `shift` positions and each later one
 * by `more` more; valid until the next call */
const float *cb_rolling_turn(struct attention *a, const struct chunk *c, int from, int shift,
                             int more);

#endif
