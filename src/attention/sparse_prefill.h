/* SPDX-License-Identifier: MIT */
/* sparse_prefill.h - prompts whose layers mostly read a part of what is before each chunk. */
#ifndef SPARSE_PREFILL_H
#define SPARSE_PREFILL_H

#include "attention.h"

/* spec: a form of prefill with options; NULL = "dense", where most of this does nothing. */
int cb_sparse_prefill_open(struct attention *a, const char *spec);
void cb_sparse_prefill_close(struct attention *a);
size_t cb_sparse_prefill_bytes(const struct attention *a);
int cb_sparse_prefill_is(const struct attention *a); /* 1: some layers read a part */

/* Of the feed at hand, how many tokens from its i-th on may go through a layer at once. */
int cb_sparse_prefill_room(const struct attention *a, int i);
/* The parts of chunk c, whose keys and values are stored, where it does not read all: 1; else 0. */
int cb_sparse_prefill_parts(struct attention *a, const struct chunk *c);
/* Chunk c has attended. A layer that chooses, does. */
void cb_sparse_prefill_chose(struct attention *a, const struct chunk *c);
/* Did the newest tokens of the feed read a part of layer l alone? */
int cb_sparse_prefill_partly(const struct attention *a, int l);

#endif
