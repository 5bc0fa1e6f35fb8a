/* SPDX-License-Identifier: MIT */
/* gpu_lists.h - the lists of runs, which may be the device's alone. */
#ifndef GPU_LISTS_H
#define GPU_LISTS_H

#include "gpu_mirror.h"

/* The areas of a run with a list, and where its rows begin in them. 0: it has none. */
int cb_gpu_run_areas(const struct gpu *g, const struct kv_run *run, struct gpu_area **k,
                     struct gpu_area **v, int *at);
/* A run's list on the device, where a search has left it, or NULL. Its last entries may be missing
 * of it. */
const int32_t *cb_gpu_found_list(const struct gpu *g, const struct kv_run *run);
/* The host will read the run's list: it is waited for if it may be on its way. */
void cb_gpu_list_home(struct gpu *g, const struct kv_run *run);
int cb_gpu_list_end(const struct gpu *g, const struct kv_run *run); /* its slots are below */
/* Are all rows up to the list's last one mirrored? Then no one need know which it names. */
int cb_gpu_is_mirrored(struct gpu *g, const struct kv_run *run);
/* 1: the run's list is on the device, and all rows that it may name are mirrored. 0: the host has
 * the list. */
int cb_gpu_list_stays(struct gpu *g, const struct kv_run *run);

#endif
