/* SPDX-License-Identifier: MIT */
/* slot_lists.h - what readers share whose decoded tokens find the slots that they read: a list for
 * each KV head or query head. The state of such a reader begins with struct slot_lists. */
#ifndef SLOT_LISTS_H
#define SLOT_LISTS_H

#include "attention/reader.h"

struct slot_lists {
    int n_list;   /* KV heads, or query heads if each has a list */
    int32_t *idx; /* [n_list][n_ctx] slots that the layer reads, ascending */
    int *n;       /* [n_list] how many */
    void *work;   /* of the op that scores sketches, or NULL */
};

/* What a layer of n slots reads: slots first..lo-1, k of lo..hi-1 (at most k by partial keys), and
 * hi..n-1. Sketches of the slots from..to-1 are scored. */
struct slot_range {
    int first, lo, hi, k, from, to;
};

/* Room for lists, and work_bytes of work space; CB_ENOMEM */
int cb_slot_lists_open(const struct attention *a, struct slot_lists *x, int n_list,
                       size_t work_bytes);
/* CB_EUNSUPPORTED where the device does not score what the reader searches, with scores 0 */
int cb_slot_lists_device(const struct attention *a, int scores, const char *what);
size_t cb_slot_lists_bytes(const struct slot_lists *x, int n_most);

/* The part of the range that this rank has of layer l, with the rank's share of the k, as the plan
 * counts it */
struct slot_range cb_slot_lists_own(const struct attention *a, int l, const struct slot_range *r);
/* Where the slots that list i of layer l finds go */
int32_t *cb_slot_lists_at(const struct attention *a, int l, const struct slot_range *r, int i);
/* Call when a token is about to search: its sketches may lie on the disk. */
void cb_slot_lists_prefetch(const struct attention *a, int l);
/* The lists have what was found: adds the slots before and after, then the part of c. Returns 1. */
int cb_slot_lists_part(struct attention *a, const struct chunk *c, const struct slot_range *r);
/* Bytes of all KV heads' sketches in the range, and those that a decoded token reads of a KV head
 * of layer l, which then holds n slots, besides sketches */
uint64_t cb_slot_lists_scored(const struct attention *a, int l, const struct slot_range *r);
uint64_t cb_slot_lists_read(const struct attention *a, int l, int n, const struct slot_range *r);

/* The first slot that the last of n sees within its window */
int cb_slot_lists_first(const struct attention *a, int l, int n);

#endif
