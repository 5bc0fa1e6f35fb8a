/* SPDX-License-Identifier: MIT */
/* cuda_dev.h - a CUDA device. Unified addressing makes an address one number on both sides. */
#ifndef CB_CUDA_DEV_H
#define CB_CUDA_DEV_H

#include "cuda_api.h"
#include "gpu/gpu.h"

/* gpu->own */
struct cuda {
    struct cuda_api api;
    cuda_device id;
    cuda_context context; /* the device's primary one, shared with the host program's use of it */
    cuda_stream stream, ahead;
    cuda_event event; /* the end of what one stream has so far, for the other to wait for */
};

/* The thread's current context is the device's from enter to leave, and then what it was. */
static inline struct cuda *cb_cuda_enter(const struct gpu *g)
{
    struct cuda *c = g->own;

    c->api.push(c->context);
    return c;
}

static inline void cb_cuda_leave(const struct cuda *c)
{
    cuda_context was;

    c->api.pop(&was);
}

/* ---- cuda_program.c: functions of struct driver ---- */

void *cb_cuda_load(struct gpu *g, enum gpu_text text, const struct gpu_options *o);
void *cb_cuda_kernel(struct gpu *g, void *program, const char *name, int *status);
void cb_cuda_unload(struct gpu *g, void *program, void *const *kernel, int n_kernel);
int cb_cuda_run(struct gpu *g, void *kernel, const size_t groups[3], size_t items,
                const struct gpu_arg *arg, int n_arg, void *const *deep);

/* ---- cuda_images.c ---- */

/* What nvcc made of a text; NULL: no image is for heads of hd numbers */
const void *cb_cuda_image(enum gpu_text text, int hd);

#endif
