/* SPDX-License-Identifier: MIT */
/* store_pair.h - the older slots of two adjacent layers as one direction for both, at a length for
 * each (MiniCache, Liu et al. 2024). Slots whose directions are far apart are retained: both layers
 * keep their own rows of them. */
#ifndef STORE_PAIR_H
#define STORE_PAIR_H

#include "base/topk_heap.h"
#include "store_state.h"

/* Work space for merging */
struct pair_work {
    float *angle;            /* [cap] */
    struct topk_item *first; /* [cap] */
};

/* Merges the slots that are not merged yet, up to slot `to`. The shared direction lies between both
 * at t: 0 is the earlier layer's, 1 the later's. In each KV head `retain` of all merged slots keep
 * their rows, of keys and of values apart: the new slots with the largest angles, and the earlier
 * slot of equal ones. */
void cb_store_pair_merge(struct store *earlier, struct device *d, int to, double t, int retain,
                         struct pair_work *w);

/* The earlier layer's rows of slots 0..n-1 of all heads -> k, v, laid out as in a store */
void cb_store_pair_restore(const struct store *earlier, struct device *d, int n, uint8_t *k,
                           uint8_t *v);

/* Bytes of rows that `merged` slots of a head need no more when `retained` of them are kept */
uint64_t cb_store_pair_saved(const struct store *s, int merged, int retained);
/* 1: the columns mark as many slots as retained as there are rows of them */
int cb_store_pair_fits(const struct store *s, int kv);

#endif
