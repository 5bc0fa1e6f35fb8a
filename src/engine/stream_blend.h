/* SPDX-License-Identifier: MIT */
/* stream_blend.h - how blocks read several residual streams and add to them, where struct
 * stream_blend says so. The streams are in the host's memory, the rest in the device's. */
#ifndef STREAM_BLEND_H
#define STREAM_BLEND_H

#include "session.h"

/* What a block reads of x[n][n_stream][n_embd] -> *out, [n][n_embd], valid until the next call. How
 * the block's result is added is remembered. Negative status: the device failed */
int cb_stream_blend_read(struct cb_session *s, const struct stream_blend *b, const float *x, int n,
                         int bits, const float **out);
/* Adds by[n][n_embd] to x, whose block was the last to read. */
void cb_stream_blend_add(struct cb_session *s, float *x, const float *by, int n);

#endif
