/* SPDX-License-Identifier: MIT */
/* ceiling.h - attention to a window at true positions, and to the first tokens as if all of them
 * were one window away (LM-Infinite, Han et al. 2024). */
#ifndef CEILING_H
#define CEILING_H

#include "attention/attention.h"

int cb_ceiling_open(struct attention *a); /* does nothing where the plan has no such layer */
void cb_ceiling_close(struct attention *a);
size_t cb_ceiling_bytes(const struct attention *a);
/* Adds the parts of chunk c and returns 1; returns 0 if its layer has no such plan, or if all of
 * its queries see everything as it is. */
int cb_ceiling_parts(struct attention *a, const struct chunk *c);

#endif
