/* SPDX-License-Identifier: MIT */
/* preview.h - the largest few logits without reading the whole output matrix. */
#ifndef PREVIEW_H
#define PREVIEW_H

#include "backend.h"

struct preview;

/* A copy of w in five bits, and how far each of its rows can be off. *out is NULL where it would not save
 * a twentieth of what a token reads, token_bytes with w, or the device cannot use it. */
int cb_preview_new(struct device *d, const struct weight *w, uint64_t token_bytes,
                   struct preview **out);
void cb_preview_free(struct device *d, struct preview *p);
uint64_t cb_preview_bytes(const struct preview *p); /* p may be NULL */

/* y[n_out] = W x with 16 bits an activation (fine), of which the k largest are right to the bit; the
 * others may be approximations, and are smaller. */
void cb_preview_top(struct device *d, struct preview *p, int k, const float *x, float *y);

#endif
