/* SPDX-License-Identifier: MIT */
/* skew.h - for layers with partial keys: the orthogonal matrix of each KV head that turns queries
 * and keys alike, so that their products stay as they are and the first columns have most of them.
 */
#ifndef SKEW_H
#define SKEW_H

#include "attention/attention.h"

int cb_skew_open(struct attention *a); /* does nothing where the plan has no partial keys */
void cb_skew_close(struct attention *a);
size_t cb_skew_bytes(const struct attention *a);

/* Adds queries and keys of chunk c, if its layer has no skew yet. */
void cb_skew_chunk(struct attention *a, const struct chunk *c);
/* The first feed has gone through layer l, which gets its skew. Later feeds change nothing. */
void cb_skew_make(struct attention *a, int l);
/* 1: a layer's skew was made of more than n tokens. */
int cb_skew_is_of_more(const struct attention *a, int n);

#endif
