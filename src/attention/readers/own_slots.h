/* SPDX-License-Identifier: MIT */
/* own_slots.h - query heads of a KV head that read different slots of it. */
#ifndef OWN_SLOTS_H
#define OWN_SLOTS_H

#include "attention/attention.h"

static inline int cb_own_slots_is(const struct attention *a, int l)
{
    return a->plan[l].own_slots;
}

int cb_own_slots_open(struct attention *a); /* does nothing where the plan has no such layer */
void cb_own_slots_close(struct attention *a);
size_t cb_own_slots_bytes(const struct attention *a, int n_most); /* work space, n_most slots */
/* Adds the parts of chunk c and returns 1; returns 0 if every head reads all slots. */
int cb_own_slots_parts(struct attention *a, const struct chunk *c);
/* score[n_head][n_ctx]: those of slots that a head does not read become 0 */
void cb_own_slots_mask(const struct attention *a, int l, float *score);

#endif
