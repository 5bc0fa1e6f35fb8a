/* SPDX-License-Identifier: MIT */
/* gpu_map.h - rows of the bank that kernels read where they are, in the host's memory. */
#ifndef GPU_MAP_H
#define GPU_MAP_H

#include "gpu_mirror.h"

/* 1: kernels may read the area's first n rows at the host's address, for whose pages the host keeps
 * its memory. 0: the driver or the machine's memory does not allow it. */
int cb_gpu_map(struct gpu *g, struct gpu_area *a, int n);
int cb_gpu_map_has(const struct gpu_area *a, int row); /* 1: they may read this one */
/* 1: many of them are not in memory, where pinning would read all of them from the disk. */
int cb_gpu_map_is_cold(const struct gpu_area *a, int n);
void cb_gpu_unmap(struct gpu *g, struct gpu_area *a); /* which may not be mapped */

#endif
