/* SPDX-License-Identifier: MIT */
/* nearest_key.h - finds the kept key that an evicted key resembles most, for methods that merge. */
#ifndef NEAREST_KEY_H
#define NEAREST_KEY_H

#include "bank.h"

/* from: an evicted slot; to: the kept slot whose key (or value) has the largest cosine with its key
 * (value); ties: the lower slot. */
struct near_slot {
    int from, to;
    float cosine;
};

struct nearest_key;

/* col: a column of the stores that the caller gives up; it holds 1 / length of each key. */
int cb_nearest_key_new(struct bank *b, int col, struct nearest_key **out);
void cb_nearest_key_free(struct nearest_key *m);
/* Work space in bytes when n_kept slots of n_most stay. */
size_t cb_nearest_key_bytes(const struct nearest_key *m, int n_most, int n_kept);
/* The nearest kept slot for each slot of a KV head that keep[n] leaves out, by its key, or with v =
 * 1 by its value; or for `slot` alone by its key -> *out, ascending in `from`; returns how many, or
 * a negative status. *out is valid until the next call. */
int cb_nearest_key_all(struct nearest_key *m, int l, int kv, int v, const int *keep, int n,
                       const struct near_slot **out);
int cb_nearest_key_one(struct nearest_key *m, int l, int kv, int slot,
                       const struct near_slot **out);
void cb_nearest_key_forget(struct nearest_key *m, int l, int kv,
                           int slot); /* its key has changed */

#endif
