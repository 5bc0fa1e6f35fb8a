/* SPDX-License-Identifier: MIT */
/* store_prefetch.h - rows that lie in a file larger than the memory: the kernel is asked for all
 * that a token will read before the first of them is waited for. */
#ifndef STORE_PREFETCH_H
#define STORE_PREFETCH_H

#include "store_state.h"

/* Rows slot[n] of a head, in ascending order; slot NULL: rows 0..n-1. Of quantised rows: all */
void cb_store_prefetch(const struct store *s, int kv, const int32_t *slot, int n);
void cb_store_prefetch_sketches(const struct store *s, int kv);

#endif
