/* SPDX-License-Identifier: MIT */
/* gpu_cache.h - rows of the bank that lists have chosen, in places on the device that the device
 * itself finds, and fills from the host's memory. */
#ifndef GPU_CACHE_H
#define GPU_CACHE_H

#include "gpu_chosen.h"

void cb_gpu_cache_close(struct gpu *g); /* all of them are given up */
/* The lists of one op's runs: each one's rows are brought to the device, in the order of the
 * queue. Runs whose rows are all mirrored, or that the device cannot bring, are left alone. */
void cb_gpu_cache_bring(struct gpu *g, const struct kv_run *run, int n);
/* Where a run's entries are that the last call has brought; k NULL: it has not. */
struct gpu_places cb_gpu_cache_find(const struct gpu *g, const struct kv_run *run);

/* The host has written rows there, or they are gone: none is left here. */
void cb_gpu_cache_leave(struct gpu *g, const void *rows);
/* As cb_gpu_chosen_stored(); `coded` stays until the queue has been waited for. */
void cb_gpu_cache_stored(struct gpu *g, struct gpu_area *a, const uint8_t *coded, int first, int n);

#endif
