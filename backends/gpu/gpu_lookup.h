/* SPDX-License-Identifier: MIT */
/* gpu_lookup.h - lists whose rows the device finds in places, and brings (cache.cl). */
#ifndef GPU_LOOKUP_H
#define GPU_LOOKUP_H

#include "gpu_mirror.h"

/* The rows of one KV head */
struct gpu_cache {
    struct gpu_area *k, *v; /* the same where a row is both */
    uint8_t *on;            /* keys[cap], values[cap], then numbers: */
    int32_t *place_of, *row_of, *turn_of;
    size_t bytes;
    int cap, rows;         /* places; rows that may be looked for */
    int fresh;             /* the row that was stored since the last list; -1: none */
    const uint8_t *new[2]; /* its key and value, on the device while the host does not have them */
    uint64_t new_at[2];    /* g->emptied when they were stored */
    int late;              /* 1: so have been others, which the host may not have yet */
    uint64_t turn;         /* of the call that brought the list */
    const struct kv_run *run;
    int first;            /* the row that its list counts from */
    const int32_t *place; /* of its entries */
    struct gpu_cache *next;
};

/* The lists of n heads go to the device in one copy, and their rows come to their places. */
void cb_gpu_lookup(struct gpu *g, struct gpu_cache *const *c, int n);

#endif
