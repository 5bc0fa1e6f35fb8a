/* SPDX-License-Identifier: MIT */
/* gpu_stream.h - weights that the host has, copied for a prompt one layer ahead. */
#ifndef GPU_STREAM_H
#define GPU_STREAM_H

#include "gpu.h"

enum { STREAM_TOKENS = 64 }; /* chunks for which a weight is copied in */

/* w->packed of an accelerator */
struct gpu_weight {
    struct gpu_program *program;
    void *on;           /* NULL: the weight is with the CPU */
    struct weight host; /* as the CPU has loaded it; unused where it is on the device */
};

static inline size_t cb_gpu_weight_bytes(const struct weight *w)
{
    return cb_row_bytes(w->type, w->n_in) * (size_t)w->n_out;
}

/* Where a named weight is on the device; NULL: it was not named. */
const void *cb_gpu_stream_find(struct gpu *g, const struct weight *w);
void cb_gpu_stream_next(struct gpu *g); /* sends one more weight, beside what is queued */
void cb_gpu_stream_close(struct gpu *g);

#endif
