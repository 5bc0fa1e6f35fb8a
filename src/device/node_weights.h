/* SPDX-License-Identifier: MIT */
/* node_weights.h - one copy of the packed weights for the ranks of a machine that lie near each
 * other. Its op table stands before that of the device while weights are loaded: the first rank
 * puts what the device has packed into memory that the others map. Ranks that are bound to
 * different NUMA nodes have copies of their own, as each then reads its own memory. */
#ifndef NODE_WEIGHTS_H
#define NODE_WEIGHTS_H

#include "device.h"
#include "ranks/ranks.h"

/* Call on every rank, before weights are loaded, with a hash of all that they depend on; 0: this
 * rank wants its own. Where ranks near each other differ in it, or cannot share memory, each has
 * its own. */
int cb_node_weights_open(struct device *d, struct ranks *team, uint64_t hash);
/* Call on every rank when all are loaded: waits until the copy is complete. What is loaded from now
 * on is this rank's own. */
int cb_node_weights_done(struct device *d);
int cb_node_weights_ranks(const struct device *d); /* that read this rank's copy; 1: its own */
/* Call after weights are unloaded, before the device is closed; without a copy, does nothing. */
void cb_node_weights_close(struct device *d);

#endif
