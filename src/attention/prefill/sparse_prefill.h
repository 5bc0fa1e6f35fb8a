/* SPDX-License-Identifier: MIT */
/* sparse_prefill.h - prompts whose layers mostly attend only to selected tokens before each
 * chunk. */
#ifndef SPARSE_PREFILL_H
#define SPARSE_PREFILL_H

#include "attention/attention.h"

/* spec: a form of prefill with options; NULL = "dense", for which most functions here do
 * nothing. */
int cb_sparse_prefill_open(struct attention *a, const char *spec);
void cb_sparse_prefill_close(struct attention *a);
/* Why a policy does not go with a form of prefill: its layers lack the keys that the prompt chooses
 * from, drop them early, or want scores of all queries. NULL: it does */
const char *cb_sparse_prefill_refuses(const struct method *form, const struct layer_plan *row,
                                      int n_layer);
size_t cb_sparse_prefill_bytes(const struct attention *a);
int cb_sparse_prefill_is(const struct attention *a);     /* 1: some layers read selected tokens */
int cb_sparse_prefill_copies(const struct attention *a); /* 1: they read copies of stored rows */

/* How many tokens may go through a layer at once, from the i-th token of the current feed. */
int cb_sparse_prefill_room(const struct attention *a, int i);
/* After how many tokens of a prompt layer l drops slots, besides at its end; 0: never. Where a
 * prompt reads selected tokens, all slots must still be there. */
int cb_sparse_prefill_drops_every(const struct attention *a, int l);
/* Adds the parts of chunk c, whose keys and values are stored, and returns 1. Returns 0 if the
 * chunk reads everything. */
int cb_sparse_prefill_parts(struct attention *a, const struct chunk *c);
/* Call after chunk c has attended: a choosing layer makes its choice. */
void cb_sparse_prefill_chose(struct attention *a, const struct chunk *c);
/* Did the last tokens of the feed read only selected tokens in layer l? */
int cb_sparse_prefill_partly(const struct attention *a, int l);

#endif
