/* SPDX-License-Identifier: MIT */
/* own_slots.h - query heads of a KV head that read different slots of it. */
#ifndef OWN_SLOTS_H
#define OWN_SLOTS_H

#include "attention/attention.h"

/* score[n_head][n_ctx]: those of slots that a head does not read become 0 */
void cb_own_slots_mask(const struct attention *a, int l, float *score);

#endif
