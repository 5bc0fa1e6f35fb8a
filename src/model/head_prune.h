/* SPDX-License-Identifier: MIT */
/* head_prune.h - the largest few logits without reading the whole output matrix. */
#ifndef HEAD_PRUNE_H
#define HEAD_PRUNE_H

#include "device/device.h"

struct head_prune;

/* How often previews helped in the current text; zero at its start. */
struct head_prune_stats {
    int vain; /* previews in vain since the last that helped */
    int pass; /* tokens to decode without a preview before the next try */
};

/* Makes a five-bit copy of w, with an error bound for each row. *out is NULL if that would save
 * less than a twentieth of token_bytes, the bytes that a token reads with w, or if the device
 * cannot use it. */
int cb_head_prune_new(struct device *d, const struct weight *w, uint64_t token_bytes,
                      struct head_prune **out);
void cb_head_prune_free(struct device *d, struct head_prune *p);
uint64_t cb_head_prune_bytes(const struct head_prune *p); /* p may be NULL */

/* y[n_out] = W x with activations of 8 or 16 bits. The k largest logits are exact to the bit; the
 * others may be approximations, and are smaller. */
void cb_head_prune_top(struct device *d, struct head_prune *p, struct head_prune_stats *stats,
                       int k, int bits, const float *x, float *y);

#endif
