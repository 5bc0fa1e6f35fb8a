/* SPDX-License-Identifier: MIT */
/* gpu_split.h - tokens' numbers as sums of two halves, which codes multiply (split.cl). */
#ifndef GPU_SPLIT_H
#define GPU_SPLIT_H

#include "gpu.h"

enum { SPLIT_ITEMS = 1024, SPLIT_MOST_TOK = 32 };

/* x[n_tok][n], on the device, as such sums. 0: no room, or a failure */
int cb_gpu_split(struct gpu *g, const float *x, int n, int n_tok, struct gpu_split *out);
/* A place for those of x, which the next command writes together with x itself. 0: none is wanted,
 * or there is no room. The memory of x may be written by nothing else until then. */
int cb_gpu_split_beside(struct gpu *g, const float *x, int n, int n_tok, struct gpu_split *out);

#endif
