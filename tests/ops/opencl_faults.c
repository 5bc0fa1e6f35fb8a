/* SPDX-License-Identifier: MIT */
/* opencl_faults.c - faults of an OpenCL driver. The library's calls come here (--wrap), are
 * counted, and go on to the real driver, unless they are to fail. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "driver_faults.h"
#include "kit/toy.h"
#include "opencl/cl.h"

static atomic_int n_live, n_commands;
static int lost_at = -1; /* the command from which on the device is lost; -1: none */
static char setting[64]; /* as set() says, and "lost=N": the N-th command from there on is lost */
static cl_int lost;

static void set(const char *text)
{
    snprintf(setting, sizeof setting, "%s", text);
    if (!strncmp(text, "lost=", 5))
        lost_at = atomic_load(&n_commands) + (int)strtol(text + 5, NULL, 10);
}

static int live(void)
{
    return atomic_load(&n_live);
}

/* The status that a call fails with, or CL_SUCCESS */
static cl_int status_of(const char *call)
{
    const size_t n = strlen(call);

    if (lost)
        return lost;
    return !strncmp(setting, "fail=", 5) && !strncmp(setting + 5, call, n) && setting[5 + n] == ':'
               ? (cl_int)strtol(setting + 6 + n, NULL, 10)
               : CL_SUCCESS;
}

/* The same of a call that queues a command */
static cl_int command(const char *call)
{
    const int n = atomic_fetch_add(&n_commands, 1);

    if (lost_at >= 0 && n >= lost_at)
        lost = CL_DEVICE_NOT_AVAILABLE;
    return status_of(call);
}

/* A call that returns a status */
#define WRAP(check, call, params, args)                                                            \
    cl_int __real_##call params;                                                                   \
    cl_int __wrap_##call params;                                                                   \
    cl_int __wrap_##call params                                                                    \
    {                                                                                              \
        const cl_int status = check(#call);                                                        \
        return status ? status : __real_##call args;                                               \
    }

WRAP(status_of, clGetPlatformIDs, (cl_uint n, cl_platform_id *id, cl_uint *found), (n, id, found))
WRAP(status_of, clBuildProgram,
     (cl_program p, cl_uint n, const cl_device_id *id, const char *options,
      void (*done)(cl_program, void *), void *arg),
     (p, n, id, options, done, arg))
WRAP(status_of, clSetKernelArg, (cl_kernel k, cl_uint i, size_t bytes, const void *p),
     (k, i, bytes, p))
WRAP(command, clEnqueueSVMMemcpy,
     (cl_command_queue q, cl_bool wait, void *to, const void *from, size_t bytes, cl_uint n,
      const cl_event *after, cl_event *event),
     (q, wait, to, from, bytes, n, after, event))
WRAP(command, clEnqueueBarrierWithWaitList,
     (cl_command_queue q, cl_uint n, const cl_event *after, cl_event *event), (q, n, after, event))
WRAP(command, clFlush, (cl_command_queue q), (q))

/* A call that gives something, and the one that takes it back, which never fails */
#define GIVES(type, call, params, args, release)                                                   \
    type __real_##call params;                                                                     \
    type __wrap_##call params;                                                                     \
    type __wrap_##call params                                                                      \
    {                                                                                              \
        type p = NULL;                                                                             \
        *err = status_of(#call);                                                                   \
        if (!*err)                                                                                 \
            p = __real_##call args;                                                                \
        n_live += p != NULL;                                                                       \
        return p;                                                                                  \
    }                                                                                              \
    TAKES(cl_int, type, release, (type p), (p))
#define TAKES(result, type, release, params, args)                                                 \
    result __real_##release params;                                                                \
    result __wrap_##release params;                                                                \
    result __wrap_##release params                                                                 \
    {                                                                                              \
        n_live--;                                                                                  \
        return __real_##release args;                                                              \
    }

GIVES(cl_context, clCreateContext,
      (const cl_context_properties *what, cl_uint n, const cl_device_id *id,
       void (*note)(const char *, const void *, size_t, void *), void *arg, cl_int *err),
      (what, n, id, note, arg, err), clReleaseContext)
GIVES(cl_command_queue, clCreateCommandQueueWithProperties,
      (cl_context c, cl_device_id id, const cl_queue_properties *what, cl_int *err),
      (c, id, what, err), clReleaseCommandQueue)
GIVES(cl_program, clCreateProgramWithSource,
      (cl_context c, cl_uint n, const char **text, const size_t *bytes, cl_int *err),
      (c, n, text, bytes, err), clReleaseProgram)
GIVES(cl_kernel, clCreateKernel, (cl_program of, const char *name, cl_int *err), (of, name, err),
      clReleaseKernel)
TAKES(void, void *, clSVMFree, (cl_context c, void *p), (c, p))
TAKES(cl_int, cl_event, clReleaseEvent, (cl_event e), (e))

void *__real_clSVMAlloc(cl_context c, cl_svm_mem_flags how, size_t bytes, cl_uint align);
void *__wrap_clSVMAlloc(cl_context c, cl_svm_mem_flags how, size_t bytes, cl_uint align);

void *__wrap_clSVMAlloc(cl_context c, cl_svm_mem_flags how, size_t bytes, cl_uint align)
{
    void *p = status_of("clSVMAlloc") ? NULL : __real_clSVMAlloc(c, how, bytes, align);

    n_live += p != NULL;
    return p;
}

cl_int __real_clEnqueueMarkerWithWaitList(cl_command_queue q, cl_uint n, const cl_event *after,
                                          cl_event *event);
cl_int __wrap_clEnqueueMarkerWithWaitList(cl_command_queue q, cl_uint n, const cl_event *after,
                                          cl_event *event);

cl_int __wrap_clEnqueueMarkerWithWaitList(cl_command_queue q, cl_uint n, const cl_event *after,
                                          cl_event *event)
{
    cl_int status = command("clEnqueueMarkerWithWaitList");

    if (!status)
        status = __real_clEnqueueMarkerWithWaitList(q, n, after, event);
    n_live += !status;
    return status;
}

cl_int __real_clFinish(cl_command_queue q);
cl_int __wrap_clFinish(cl_command_queue q);

/* What was queued has ended, since its memory may be given back now. */
cl_int __wrap_clFinish(cl_command_queue q)
{
    const cl_int status = __real_clFinish(q), fails = command("clFinish");
    return fails ? fails : status;
}

cl_int __real_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint n, const size_t *at,
                                     const size_t *global, const size_t *local, cl_uint n_after,
                                     const cl_event *after, cl_event *event);
cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint n, const size_t *at,
                                     const size_t *global, const size_t *local, cl_uint n_after,
                                     const cl_event *after, cl_event *event);

cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint n, const size_t *at,
                                     const size_t *global, const size_t *local, cl_uint n_after,
                                     const cl_event *after, cl_event *event)
{
    cl_int status = command("clEnqueueNDRangeKernel");
    char name[32] = "";

    if (status)
        return status;
    status = __real_clEnqueueNDRangeKernel(q, k, n, at, global, local, n_after, after, event);
    clGetKernelInfo(k, CL_KERNEL_FUNCTION_NAME, sizeof name - 1, name, NULL);
    if (!strncmp(setting, "fault=", 6) && !strcmp(setting + 6, name))
        lost = CL_DEVICE_NOT_AVAILABLE;
    return status;
}

/* ---- what is expected ---- */

static const struct fault openings[] = {
    { "fail=clGetPlatformIDs:-1001", 0, "device opencl: no OpenCL 2.0 device" },
    { "fail=clCreateContext:-6", 0,
      "opencl:0: no command queue: OpenCL status -6: no memory of the host" },
    { "fail=clCreateCommandQueueWithProperties:-5", 0,
      "opencl:0: no command queue: OpenCL status -5: out of resources" },
    { "fail=clCreateProgramWithSource:-6", 0,
      "opencl:0: kernels vector: OpenCL status -6: no memory of the host" },
    { "fail=clBuildProgram:-11", 0, "opencl:0: kernels vector " },
    { NULL, 0, NULL },
};

static const struct fault ops[] = {
    { "fail=clSVMAlloc:-4", CB_ENOMEM, "device opencl:0: out of memory: " },
    { "fail=clEnqueueSVMMemcpy:-2", CB_EIO,
      "device opencl:0: copy: failed (OpenCL status -2: device not available)" },
    { "fail=clCreateKernel:-46", CB_EIO,
      "device opencl:0: add: failed (OpenCL status -46: no kernel of this name)" },
    { "fail=clSetKernelArg:-51", CB_EIO,
      "device opencl:0: add: failed (OpenCL status -51: argument of a wrong size)" },
    { "fail=clEnqueueNDRangeKernel:-4", CB_ENOMEM,
      "device opencl:0: add: out of memory (OpenCL status -4: no memory of the device)" },
    { "fail=clEnqueueNDRangeKernel:-5", CB_EIO,
      "device opencl:0: add: failed (OpenCL status -5: out of resources)" },
    { "fail=clEnqueueNDRangeKernel:-54", CB_EIO,
      "device opencl:0: add: failed (OpenCL status -54: invalid size of groups)" },
    { "fail=clFinish:-2", CB_EIO, "device opencl:0: wait: failed (OpenCL status -2" },
    { NULL, 0, NULL },
};

/* Behind a kernel, and at commands all over a prompt and a token */
static const struct loss losses[] = {
    { "fault=tile", 0, 0 },
    { "fault=encode", 2 << 20, 0 },
    { "fault=attend", 0, 1 },
    { "fault=few_1", 0, 1 },
    { "lost=0", 0, 0 },
    { "lost=1", 2 << 20, 0 },
    { "lost=9", 0, 0 },
    { "lost=40", 2 << 20, 0 },
    { "lost=90", 2 << 20, 0 },
    { "lost=150", 2 << 20, 0 },
    { "lost=0", 0, 1 },
    { "lost=7", 2 << 20, 1 },
    { "lost=30", 2 << 20, 1 },
    { "lost=60", 0, 1 },
    { NULL, 0, 0 },
};

const struct driver_faults cb_driver_faults = {
    .set = set,
    .live = live,
    .opening = openings,
    .op = ops,
    .loss = losses,
    .lost_copy = "device opencl:0: copy: failed (OpenCL status -2",
    .lost_memory = "device opencl:0: out of memory: ",
    .lost = "OpenCL status -2",
    .no_kernel = "fail=clBuildProgram:-11",
    .no_launch = "fail=clEnqueueNDRangeKernel:-4",
};
