/* SPDX-License-Identifier: MIT */
/* cross_layer.h - layers that take the logits of distant tokens from an earlier layer (PoD). */
#ifndef CROSS_LAYER_H
#define CROSS_LAYER_H

#include "attention/attention.h"

int cb_cross_layer_open(struct attention *a); /* does nothing where the plan has no such layer */
void cb_cross_layer_close(struct attention *a);
/* Work space for prompts of n_feed tokens and a context of n_most. */
size_t cb_cross_layer_bytes(const struct attention *a, int n_feed, int n_most);
static inline int cb_cross_layer_is(const struct attention *a, int l)
{
    return a->plan[l].cross.from != NULL;
}

/* Call before the parts of chunk c are made: saves the leaders' queries of a prompt for their
 * followers. */
int cb_cross_layer_prepare(struct attention *a, const struct chunk *c);
/* Adds the parts of chunk c, whose keys and values are already stored. */
int cb_cross_layer_parts(struct attention *a, const struct chunk *c);
/* Call after layer l has attended: drops keys that no later query will read. */
void cb_cross_layer_drop_keys(struct attention *a, int l);
void cb_cross_layer_end(struct attention *a); /* after the last layer */

/* Key bytes that layer l does not hold after n tokens were fed and n_slot slots are left. A lower
 * bound where the number depends on the text. */
uint64_t cb_cross_layer_saved(const struct attention *a, int l, int n, int n_slot);
/* Bytes of logits that a decoded token reads in layer l, minus the bytes of the keys that it does
 * not read. */
int64_t cb_cross_layer_read(const struct attention *a, int l, int n, int n_slot);

#endif
