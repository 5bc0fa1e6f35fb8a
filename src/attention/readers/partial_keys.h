/* SPDX-License-Identifier: MIT */
/* partial_keys.h - layers whose decoded tokens choose slots by partial keys: the first columns of
 * the skewed keys, beside queries that an earlier layer's input gives. */
#ifndef PARTIAL_KEYS_H
#define PARTIAL_KEYS_H

#include "attention/attention.h"

static inline int cb_partial_keys_is(const struct attention *a, int l)
{
    return a->plan[l].sketch.columns > 0;
}

/* Columns of the partial keys, the same in every layer that has them; 0: none has */
int cb_partial_keys_columns(const struct attention *a);
int cb_partial_keys_open(struct attention *a); /* does nothing where no layer has partial keys */
void cb_partial_keys_close(struct attention *a);
size_t cb_partial_keys_bytes(const struct attention *a, int n_most); /* work space */

/* The guessed queries of layer l's token that attends next, the i-th of those that are decoded
 * together; q[n_head][hd], rotated */
void cb_partial_keys_guess(struct attention *a, int i, const float *q);
/* Of layer l's slots lo..hi-1 each KV head chooses as many, at most `most` -> ascending
 * idx[n_kv][stride], the count. */
int cb_partial_keys_choose(struct attention *a, int l, int lo, int hi, int most, int32_t *idx,
                           int stride);

#endif
