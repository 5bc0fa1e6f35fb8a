/* SPDX-License-Identifier: MIT */
/* cl.h - an OpenCL device. Its memory is shared virtual memory that the host never touches, so an
 * address is one number on both sides. */
#ifndef CB_CL_H
#define CB_CL_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 200
#endif
#include <CL/cl.h>

#include "gpu/gpu.h"

/* gpu->own */
struct cl {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue, ahead;
    int subgroups; /* 1: kernels are compiled with HAS_SUBGROUPS (prelude.cl) */
};

static inline struct cl *cb_cl_of(const struct gpu *g)
{
    return g->own;
}

/* ---- cl_status.c ---- */

/* "OpenCL status -5: out of resources" */
void cb_cl_explain(const struct gpu *g, int status, char *text, size_t size);

/* ---- cl_program.c: functions of struct driver ---- */

void *cb_cl_load(struct gpu *g, enum gpu_text text, const struct gpu_options *o);
void *cb_cl_kernel(struct gpu *g, void *program, const char *name, int *status);
void cb_cl_unload(struct gpu *g, void *program, void *const *kernel, int n_kernel);
int cb_cl_run(struct gpu *g, void *kernel, const size_t groups[3], size_t items,
              const struct gpu_arg *arg, int n_arg, void *const *deep);

#endif
