/* SPDX-License-Identifier: MIT */
/* gpu_stream.h - weights that the host has, copied for a prompt one layer ahead. */
#ifndef GPU_STREAM_H
#define GPU_STREAM_H

#include "gpu_share.h"

/* Where a named weight is on the device; NULL: it was not named. */
const void *cb_gpu_stream_find(struct gpu *g, const struct weight *w);
void cb_gpu_stream_next(struct gpu *g); /* sends one more weight, beside what is queued */
void cb_gpu_stream_close(struct gpu *g);

#endif
