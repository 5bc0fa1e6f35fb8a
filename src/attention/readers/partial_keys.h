/* SPDX-License-Identifier: MIT */
/* partial_keys.h - slots chosen by partial keys: the first columns of the skewed keys, beside
 * queries that an earlier layer's input gives. */
#ifndef PARTIAL_KEYS_H
#define PARTIAL_KEYS_H

#include "attention/attention.h"

struct partial_keys;

/* columns: of the partial keys, the same in every layer that has them. Call close() even after a
 * failure. */
int cb_partial_keys_open(const struct attention *a, int columns, struct partial_keys **out);
void cb_partial_keys_close(struct partial_keys *x);
size_t cb_partial_keys_bytes(const struct attention *a, int columns, int n_most); /* work space */

/* The guessed queries of the layer's token that attends next, the i-th of those that are decoded
 * together; q[n_head][hd], rotated */
void cb_partial_keys_guess(const struct attention *a, struct partial_keys *x, int i,
                           const float *q);
/* Of layer l's slots lo..hi-1 each KV head chooses as many, at most `most` -> ascending
 * idx[n_kv][stride], the count. */
int cb_partial_keys_choose(struct attention *a, struct partial_keys *x, int l, int lo, int hi,
                           int most, int32_t *idx, int stride);

#endif
