/* SPDX-License-Identifier: MIT */
/* gpu_pack.h - rows of the bank that go to the device in one copy, to places in any order. */
#ifndef GPU_PACK_H
#define GPU_PACK_H

#include "gpu.h"

int cb_gpu_pack_open(struct gpu *g); /* unless it is */
void cb_gpu_pack_close(struct gpu *g);
void cb_gpu_pack_drop(struct gpu *g); /* nothing is on its way */
/* A piece of the device's memory in which places are; it no longer is one. */
int cb_gpu_pack_reach(struct gpu *g, void *piece);
void cb_gpu_pack_leave(struct gpu *g, const void *piece);
/* All rows of a copy have the widths of the first, in bytes. 0: these have not. */
int cb_gpu_pack_widths(struct gpu *g, size_t key, size_t value);
/* A key (v 0) or value of the host's, and its place on the device */
int cb_gpu_pack_add(struct gpu *g, int v, const uint8_t *from, const uint8_t *to);
int cb_gpu_pack_count(const struct gpu *g); /* keys that have been added */
void cb_gpu_pack_send(struct gpu *g);       /* All that have been added are on their way. */
/* What is on its way goes to its places, in the order of the queue. */
void cb_gpu_pack_place(struct gpu *g);

#endif
