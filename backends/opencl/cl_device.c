/* SPDX-License-Identifier: MIT */
/* cl_device.c - OpenCL devices through the ICD loader: finds them, opens one, and fills the op
 * table. */
#include "cl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cl_mirror.h"

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

static int64_t reserve(struct device *d, int n_tok, int max_in, int max_out, int n_head, int hd,
                       int n_ctx)
{
    struct cl *c = cb_cl_of(d);
    return c->host.ops->reserve(&c->host, n_tok, max_in, max_out, n_head, hd, n_ctx);
}

static void fill(struct cl *c)
{
    c->ops = (struct ops){ .name = "opencl",
                           .memory = &cb_cl_memory,
                           .load = cb_cl_load,
                           .unload = cb_cl_unload,
                           .reserve = reserve,
                           .matmul = cb_cl_matmul,
                           .matmul_glu = cb_cl_matmul_glu,
                           .get_rows = cb_cl_get_rows,
                           .rmsnorm = cb_cl_rmsnorm,
                           .layernorm = cb_cl_layernorm,
                           .rope = cb_cl_rope,
                           .scale = cb_cl_scale,
                           .sink = cb_cl_sink,
                           .glu = cb_cl_glu,
                           .add = cb_cl_add,
                           .attention = cb_cl_attention,
                           .score = cb_cl_score,
                           .join = cb_cl_join,
                           .kv_encode = cb_cl_kv_encode,
                           .kv_decode = cb_cl_kv_decode,
                           .nearest = cb_cl_nearest,
                           .best_head = cb_cl_best_head,
                           .topk = cb_cl_topk };
}

static int open_queue(struct cl *c)
{
    cl_int err;

    c->context = clCreateContext(NULL, 1, &c->id, NULL, NULL, &err);
    if (c->context)
        c->queue = clCreateCommandQueueWithProperties(c->context, c->id, NULL, &err);
    if (!c->queue)
        return cb_fail(CB_EUNSUPPORTED, "device %s: no command queue: OpenCL status %d", c->name,
                       (int)err);
    return CB_OK;
}

/* By default a tenth of the memory is left to the driver and others. */
static int open_limit(struct cl *c, uint64_t working_set)
{
    enum { LEAST = 1 << 20 };
    cl_ulong all = 0, most = 0;

    clGetDeviceInfo(c->id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof all, &all, NULL);
    clGetDeviceInfo(c->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL);
    if (working_set > all)
        return cb_fail(CB_EARG, "device %s: a working set of %llu bytes; it has %llu", c->name,
                       (unsigned long long)working_set, (unsigned long long)all);
    if (working_set && working_set < LEAST)
        return cb_fail(CB_EARG, "device %s: a working set of %llu bytes; it needs %d", c->name,
                       (unsigned long long)working_set, LEAST);
    c->traffic.limit_bytes = working_set ? working_set : all / 10 * 9;
    c->most_block = (size_t)most;
    return CB_OK;
}

/* The kernels that every model needs; the others are compiled when a weight or a session asks. */
static int open_kernels(struct cl *c)
{
    return cb_cl_program(c, CL_VECTOR, "") && cb_cl_program(c, CL_SELECT, "") ? CB_OK
                                                                              : CB_EUNSUPPORTED;
}

static int open_steps(struct cl *c, struct device *d, const struct device_want *want)
{
    cl_device_id id[MOST_DEVICE];
    const int n = list(id);

    snprintf(c->name, sizeof c->name, "%s:%d", d->name, d->index);
    if (d->index >= n)
        return cb_fail(CB_EARG, "device %s: there are %d", c->name, n);
    c->id = id[d->index];
    c->log = want->log;
    c->log_arg = want->log_arg;
    if (want->cache_dir && !(c->cache_dir = strdup(want->cache_dir)))
        return cb_fail(CB_ENOMEM, "out of memory");
    TRY(open_limit(c, want->working_set));
    TRY(open_queue(c));
    TRY(cb_cl_mirror_open(c));
    c->host = (struct device){ .name = "cpu", .par = d->par, .lock = d->lock };
    TRY(cb_backend_cpu.open(&c->host, want));
    return open_kernels(c);
}

static void close_cl(struct device *d)
{
    struct cl *c = cb_cl_of(d);

    if (c->queue)
        clFinish(c->queue);
    cb_cl_mirror_close(c);
    cb_cl_free_all(c);
    cb_cl_free_programs(c);
    if (c->host.impl)
        cb_backend_cpu.close(&c->host);
    if (c->queue)
        clReleaseCommandQueue(c->queue);
    if (c->context)
        clReleaseContext(c->context);
    free(c->cache_dir);
    free(c);
}

static int open_cl(struct device *d, const struct device_want *want)
{
    struct cl *c = cb_calloc(1, sizeof *c);
    int err;

    if (!c)
        return CB_ENOMEM;
    d->impl = c;
    err = open_steps(c, d, want);
    if (err) {
        close_cl(d);
        return err;
    }
    fill(c);
    d->ops = &c->ops;
    d->isa = "opencl";
    return CB_OK;
}

const struct backend cb_backend_opencl = {
    .name = "opencl",
    .text = "OpenCL 2.0 devices with shared virtual memory; opencl:1 is the second",
    .open = open_cl,
    .close = close_cl,
    .available = available,
    .own_memory = 1,
    .unit_at = unit_at,
};
