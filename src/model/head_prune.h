/* SPDX-License-Identifier: MIT */
/* head_prune.h - the largest few logits without reading the whole output matrix. */
#ifndef PREVIEW_H
#define PREVIEW_H

#include "device/device.h"

struct head_prune;

/* How it went in the text at hand; starts as 0. */
struct head_prune_luck {
    int vain; /* previews since the last that helped */
    int pass; /* tokens that go without one before the next */
};

/* A copy of w in five bits, and how far each of its rows can be off. *out is NULL where it would
 * not save a twentieth of what a token reads, token_bytes with w, or the device cannot use it. */
int cb_head_prune_new(struct device *d, const struct weight *w, uint64_t token_bytes,
                      struct head_prune **out);
void cb_head_prune_free(struct device *d, struct head_prune *p);
uint64_t cb_head_prune_bytes(const struct head_prune *p); /* p may be NULL */

/* y[n_out] = W x with 16 bits an activation (16-bit), of which the k largest are right to the bit;
 * the others may be approximations, and are smaller. */
void cb_head_prune_top(struct device *d, struct head_prune *p, struct head_prune_luck *luck, int k,
                       const float *x, float *y);

#endif
