/* SPDX-License-Identifier: MIT */
/* skew.h - for layers with partial keys: the orthogonal matrix of each KV head that turns queries
 * and keys alike, so that their products stay as they are and the first columns have most of them.
 */
#ifndef SKEW_H
#define SKEW_H

#include "attention/attention.h"

struct skew;

/* In the memory of a reader's state; CB_ENOMEM */
int cb_skew_open(const struct attention *a, void *state, struct skew **out);

/* Adds queries and keys of chunk c, if its layer has no skew yet. */
void cb_skew_chunk(const struct attention *a, struct skew *x, const struct chunk *c);
/* The first feed has gone through layer l, which gets its skew. Later feeds change nothing. */
void cb_skew_make(const struct attention *a, struct skew *x, int l);

#endif
