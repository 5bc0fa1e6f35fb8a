/* SPDX-License-Identifier: MIT */
/* gpu_ahead.h - rows of the bank that the next layer will read whole, copied while this one
 * computes. */
#ifndef GPU_AHEAD_H
#define GPU_AHEAD_H

#include "gpu_mirror.h"

/* The layer after the one that begins now will read these runs whole. n 0: which rows it reads is
 * not known. */
void cb_gpu_rows_ahead(struct gpu *g, const struct kv_run *run, int n);
void cb_gpu_rows_ahead_next(struct gpu *g); /* sends some of them, beside what is queued */
void cb_gpu_rows_ahead_forget(struct gpu *g, const struct gpu_area *a); /* it is given up */
void cb_gpu_rows_ahead_close(struct gpu *g);

#endif
