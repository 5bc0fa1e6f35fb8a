/* SPDX-License-Identifier: MIT */
/* gpu_index.h - ops on a trained selector's keys. */
#ifndef GPU_INDEX_H
#define GPU_INDEX_H

#include "gpu.h"

void cb_gpu_strips_put(struct device *d, const float *x, int n, int stride, int hd, int at,
                       void *strips);
int cb_gpu_index_topk(struct device *d, const struct index_topk *t);
int cb_gpu_mean_rows(struct device *d, enum kv_type t, const void *rows, int n, int hd,
                     float *mean); /* gpu_bounds.c */
int cb_gpu_block_topk(struct device *d, const struct block_topk *t);

#endif
