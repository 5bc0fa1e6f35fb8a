/* SPDX-License-Identifier: MIT */
/* gpu_chosen.h - rows of the bank that a list has chosen, on the device from one token to the next.
 */
#ifndef GPU_CHOSEN_H
#define GPU_CHOSEN_H

#include "gpu_mirror.h"

/* Where the entries of a list lie */
struct gpu_places {
    const int32_t *at;    /* [n] NULL: not here, or: */
    const int32_t *on;    /* [n] the same, on the device */
    const uint8_t *k, *v; /* place 0 of the keys, of the values */
    void *piece;          /* of memory, that they lie in */
};

void cb_gpu_chosen_close(struct gpu *g);
void cb_gpu_chosen_drop(struct gpu *g); /* nothing is there */
/* Each run's list replaces what its rows' area had: rows that are not there come in one packed
 * copy, beside what is queued. Runs whose rows are mirrored, or are the cache's (gpu_cache.h), or
 * cannot be held, or whose list does not ascend, are left alone. */
void cb_gpu_chosen_bring(struct gpu *g, const struct kv_run *run, int n);
/* Finds a run's entries, if all of them are there. */
struct gpu_places cb_gpu_chosen_find(struct gpu *g, const struct kv_run *run);

void cb_gpu_chosen_unwatch(struct gpu *g, const void *rows);
void cb_gpu_chosen_wrote(const struct gpu *g, const void *from, size_t bytes);
/* Coded rows, on the device, were stored as rows first..first+n-1. A decoded token's row is among
 * the next list's. */
void cb_gpu_chosen_stored(struct gpu *g, struct gpu_area *a, const uint8_t *coded, int first,
                          int n);

#endif
