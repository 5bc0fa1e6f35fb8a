/* SPDX-License-Identifier: MIT */
/* packed_copy.h - a prepacked copy of the layer that a prompt goes through. */
#ifndef PACKED_COPY_H
#define PACKED_COPY_H

#include "attention/attention.h"

struct packed_copy;

/* -> *out, NULL where the device cannot prepack the bank's types. Its memory is of
 * `state`. */
int cb_packed_copy_open(const struct attention *a, void *state, struct packed_copy **out);

/* Another layer's turn has come, or another prompt's. */
void cb_packed_copy_begin(struct packed_copy *p);
/* Copies those of the first n rows of st that are not in the copy yet, and prepacks whole blocks.
 * Every slot of st is a row, in order, and none is prepacked. */
void cb_packed_copy_follow(struct packed_copy *p, const struct store *st, int n);
/* The copy's entries of a KV head */
struct kv_run cb_packed_copy_run(const struct packed_copy *p, int kv);

#endif
