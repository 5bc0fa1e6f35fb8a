/* SPDX-License-Identifier: MIT */
/* gpu_runs.h - where the entries of an attention call lie on the device. */
#ifndef GPU_RUNS_H
#define GPU_RUNS_H

#include "gpu_mirror.h"

/* The runs of one call, as kernels read them, and which rows of them are missing. */
struct gpu_runs {
    const struct attn *a;
    struct gpu_run *run; /* [n_kv] for the kernel; private to gpu_runs.c */
    struct gpu_kind *kind;
    float **logit;       /* [n_kv] on the device; NULL: none */
    const int32_t *list; /* the last one that was copied; its entries; where it is */
    int n_list;
    uint64_t list_on;
    void **own; /* [n_own] memory of chosen rows */
    int n_own;
    void *on;      /* the descriptions on the device */
    void **deep;   /* pieces of memory that they lead to; ends with NULL */
    int missing;   /* 1: some entries are not on the device */
    int (*gap)[2]; /* missing pieces of all runs, run by run */
    int *gap_at;   /* [n_kv + 1] */
};

/* Copies lists and rows that lie outside of the bank to the device. 0: not possible. */
int cb_gpu_runs_open(struct gpu *g, struct gpu_runs *r, const struct attn *a);
/* Finds or fetches the rows of the bank, newest first, and writes the descriptions. 0: what is
 * missing cannot be left to the CPU. */
int cb_gpu_runs_find(struct gpu *g, struct gpu_runs *r);
void cb_gpu_runs_close(struct gpu *g, struct gpu_runs *r);
/* The i-th missing piece [lo, hi) of a head's run; 0: there are fewer. */
int cb_gpu_runs_missing(const struct gpu_runs *r, int h, int i, int *lo, int *hi);
/* Entries lo..hi-1 of a run, as a run */
struct kv_run cb_gpu_run_part(const struct attn *a, int h, int lo, int hi);

#endif
