/* SPDX-License-Identifier: MIT */
/* cl_driver.c - OpenCL devices through the ICD loader: finds them, opens one, its memory and its
 * queue. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cl.h"

enum { MOST_PLATFORM = 16, MOST_DEVICE = 32 };

/* ---- which there are ---- */

static int has_shared_memory(cl_device_id id)
{
    cl_device_svm_capabilities svm = 0;

    return !clGetDeviceInfo(id, CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL) &&
           (svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER);
}

/* All devices of all platforms that have shared virtual memory, in the loader's order */
static int list(cl_device_id id[MOST_DEVICE])
{
    cl_platform_id platform[MOST_PLATFORM];
    cl_device_id of[MOST_DEVICE];
    cl_uint n_platform = 0, n_of;
    int n = 0;

    if (clGetPlatformIDs(MOST_PLATFORM, platform, &n_platform))
        return 0;
    for (cl_uint p = 0; p < n_platform && p < MOST_PLATFORM; p++) {
        n_of = 0;
        if (clGetDeviceIDs(platform[p], CL_DEVICE_TYPE_ALL, MOST_DEVICE, of, &n_of))
            continue;
        for (cl_uint i = 0; i < n_of && i < MOST_DEVICE && n < MOST_DEVICE; i++)
            if (has_shared_memory(of[i]))
                id[n++] = of[i];
    }
    return n;
}

static int available(const char **why_not)
{
    cl_device_id id[MOST_DEVICE];

    *why_not = "no OpenCL 2.0 device with shared virtual memory on this machine";
    return list(id) > 0;
}

static int unit_at(int j, char *text, size_t size, uint64_t *bytes)
{
    cl_device_id id[MOST_DEVICE];
    cl_ulong all = 0;
    char name[256] = "";

    if (j < 0 || j >= list(id))
        return 0;
    clGetDeviceInfo(id[j], CL_DEVICE_NAME, sizeof name - 1, name, NULL);
    clGetDeviceInfo(id[j], CL_DEVICE_GLOBAL_MEM_SIZE, sizeof all, &all, NULL);
    snprintf(text, size, "%s", name);
    *bytes = all;
    return 1;
}

/* ---- open ---- */

static int open_queue(const struct gpu *g, struct cl *c)
{
    char why[64];
    cl_int err;

    c->context = clCreateContext(NULL, 1, &c->id, NULL, NULL, &err);
    if (c->context)
        c->queue = clCreateCommandQueueWithProperties(c->context, c->id, NULL, &err);
    if (c->queue)
        c->ahead = clCreateCommandQueueWithProperties(c->context, c->id, NULL, &err);
    if (!c->ahead) {
        cb_cl_explain(g, err, why, sizeof why);
        return cb_fail(CB_EUNSUPPORTED, "device %s: no command queue: %s", g->name, why);
    }
    return CB_OK;
}

/* 1: the device's kernels may exchange numbers within sub-groups (prelude.cl) */
static int has_subgroups(cl_device_id id)
{
    char version[64] = "", *words;
    size_t n = 0;
    int has = 0;

    clGetDeviceInfo(id, CL_DEVICE_VERSION, sizeof version - 1, version, NULL);
    if (strncmp(version, "OpenCL 3", 8) || clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, 0, NULL, &n) ||
        !(words = calloc(n + 1, 1)))
        return 0;
    if (!clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, n, words, NULL))
        for (char *save, *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
            has |= !strcmp(w, "cl_khr_subgroup_shuffle");
    free(words);
    return has;
}

static int open_cl(struct gpu *g, int index, struct gpu_size *size)
{
    cl_device_id id[MOST_DEVICE];
    const int n = list(id);
    cl_ulong all = 0, most = 0;
    struct cl *c;

    if (index >= n)
        return cb_fail(CB_EARG, "device %s: there are %d", g->name, n);
    g->own = c = cb_calloc(1, sizeof *c);
    if (!c)
        return CB_ENOMEM;
    c->id = id[index];
    c->subgroups = has_subgroups(c->id);
    clGetDeviceInfo(c->id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof all, &all, NULL);
    clGetDeviceInfo(c->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL);
    *size = (struct gpu_size){ .all = all, .free = all, .most = most };
    return open_queue(g, c);
}

static void close_cl(struct gpu *g)
{
    struct cl *c = cb_cl_of(g);

    if (c->ahead)
        clReleaseCommandQueue(c->ahead);
    if (c->queue)
        clReleaseCommandQueue(c->queue);
    if (c->context)
        clReleaseContext(c->context);
    free(c);
}

static int is_memory(int status)
{
    return status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_HOST_MEMORY;
}

/* ---- memory and queue ---- */

static int alloc(struct gpu *g, size_t bytes, void **p)
{
    enum { ALIGN = 128 };

    *p = clSVMAlloc(cb_cl_of(g)->context, CL_MEM_READ_WRITE, bytes, ALIGN);
    return *p ? CL_SUCCESS : CL_MEM_OBJECT_ALLOCATION_FAILURE;
}

static void free_cl(struct gpu *g, void *p)
{
    clSVMFree(cb_cl_of(g)->context, p);
}

static void *alloc_host(struct gpu *g, size_t bytes)
{
    (void)g;
    return cb_alloc_aligned(bytes, 1);
}

static void free_host(struct gpu *g, void *p)
{
    (void)g;
    free(p);
}

static int copy(struct gpu *g, void *to, const void *from, size_t bytes)
{
    return clEnqueueSVMMemcpy(cb_cl_of(g)->queue, CL_FALSE, to, from, bytes, 0, NULL, NULL);
}

static int copy_ahead(struct gpu *g, void *to, const void *from, size_t bytes)
{
    const struct cl *c = cb_cl_of(g);
    const cl_int err = clEnqueueSVMMemcpy(c->ahead, CL_FALSE, to, from, bytes, 0, NULL, NULL);

    return err ? err : clFlush(c->ahead);
}

/* What `later` gets from here on waits for what `first` has so far; if it cannot, the host does. */
static int order(cl_command_queue first, cl_command_queue later)
{
    cl_event end;
    cl_int err = clEnqueueMarkerWithWaitList(first, 0, NULL, &end);

    if (!err) {
        err = clFlush(first);
        if (!err)
            err = clEnqueueBarrierWithWaitList(later, 1, &end, NULL);
        clReleaseEvent(end);
    }
    if (err)
        clFinish(first);
    return err;
}

static int ahead_after(struct gpu *g)
{
    return order(cb_cl_of(g)->queue, cb_cl_of(g)->ahead);
}

static int after_ahead(struct gpu *g)
{
    return order(cb_cl_of(g)->ahead, cb_cl_of(g)->queue);
}

static void flush(struct gpu *g)
{
    clFlush(cb_cl_of(g)->queue);
}

static int finish(struct gpu *g)
{
    const struct cl *c = cb_cl_of(g);
    return c->queue ? clFinish(c->queue) : CL_SUCCESS;
}

static const struct driver driver = {
    .ops = "opencl",
    .open = open_cl,
    .close = close_cl,
    .is_memory = is_memory,
    .explain = cb_cl_explain,
    .alloc = alloc,
    .free = free_cl,
    .alloc_host = alloc_host,
    .free_host = free_host,
    .copy = copy,
    .copy_ahead = copy_ahead,
    .ahead_after = ahead_after,
    .after_ahead = after_ahead,
    .flush = flush,
    .finish = finish,
    .load = cb_cl_load,
    .kernel = cb_cl_kernel,
    .unload = cb_cl_unload,
    .run = cb_cl_run,
};

static int open_device(struct device *d, const struct device_want *want)
{
    return cb_gpu_open(d, want, &driver);
}

const struct backend cb_backend_opencl = {
    .name = "opencl",
    .text = "OpenCL 2.0 devices with shared virtual memory; opencl:1 is the second",
    .open = open_device,
    .close = cb_gpu_close,
    .available = available,
    .own_memory = 1,
    .unit_at = unit_at,
};
