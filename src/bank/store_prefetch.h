/* SPDX-License-Identifier: MIT */
/* store_prefetch.h - rows that lie in a file larger than the memory: the kernel prefetches all rows
 * that a token will read before the token waits for the first one. */
#ifndef STORE_PREFETCH_H
#define STORE_PREFETCH_H

#include "store_state.h"

/* Rows slot[n] of a head, in ascending order; slot NULL: rows 0..n-1. Of quantised rows: all */
void cb_store_prefetch(const struct store *s, int kv, const int32_t *slot, int n);
void cb_store_prefetch_sketches(const struct store *s, int kv);

#endif
