/* SPDX-License-Identifier: MIT */
/* idle_cuda.c - a CUDA driver whose device does nothing: copies and kernels are only counted, so
 * what a prompt or a token takes on it is the host's own time, which perf can attribute. Results
 * are not defined, so policies that choose by them choose anything.
 *
 *   make bench/idle/libcuda.so.1
 *   LD_LIBRARY_PATH=bench/idle perf record -g ./ctxbank bench -m MODEL -p 4096 -n 0 --device cuda:0
 *
 * At the end it writes to stderr how often the host launched, copied and waited. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, MOST_KERNEL = 512 };

#define BEGIN ((uint64_t)1 << 44) /* of the device's addresses, where the host has none */
#define BYTES ((uint64_t)1 << 37)

static struct {
    uint64_t times, bytes;
} to_device, from_device, within;
static uint64_t used, waits;
static struct kernel {
    char name[64];
    uint64_t times;
} kernels[MOST_KERNEL];

__attribute__((destructor)) static void report(void)
{
    uint64_t launches = 0;

    for (int i = 0; i < MOST_KERNEL; i++)
        launches += kernels[i].times;
    fprintf(stderr,
            "idle device: %" PRIu64 " launches, %" PRIu64 " waits, copies to it %" PRIu64
            " (%" PRIu64 " bytes), from it %" PRIu64 " (%" PRIu64 "), within %" PRIu64 " (%" PRIu64
            ")\n",
            launches, waits, to_device.times, to_device.bytes, from_device.times,
            from_device.bytes, within.times, within.bytes);
    for (int i = 0; i < MOST_KERNEL; i++)
        if (kernels[i].times)
            fprintf(stderr, "  %s %" PRIu64 "\n", kernels[i].name, kernels[i].times);
}

static int is_on(uint64_t at)
{
    return at >= BEGIN && at < 2 * BEGIN;
}

/* ---- devices ---- */

int cuInit(unsigned flags)
{
    (void)flags;
    return OK;
}

int cuGetErrorString(int status, const char **text)
{
    (void)status;
    *text = "the idle device never fails";
    return OK;
}

int cuDeviceGetCount(int *n)
{
    *n = 1;
    return OK;
}

int cuDeviceGet(int *device, int i)
{
    *device = i;
    return OK;
}

int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, (size_t)size, "Idle device %d", device);
    return OK;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = BYTES;
    return OK;
}

int cuMemGetInfo_v2(size_t *unused, size_t *all)
{
    *unused = *all = BYTES;
    return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    *context = kernels;
    return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return OK;
}

int cuCtxPushCurrent_v2(void *context)
{
    (void)context;
    return OK;
}

int cuCtxPopCurrent_v2(void **context)
{
    *context = kernels;
    return OK;
}

/* ---- memory ---- */

int cuMemAlloc_v2(uint64_t *p, size_t bytes)
{
    *p = BEGIN + used;
    used += (bytes + 255) / 256 * 256;
    return OK;
}

int cuMemFree_v2(uint64_t p)
{
    (void)p;
    return OK;
}

int cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    *p = calloc(1, bytes);
    return *p ? OK : 2;
}

int cuMemFreeHost(void *p)
{
    free(p);
    return OK;
}

int cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
    (void)p, (void)bytes, (void)flags;
    return OK;
}

int cuMemHostUnregister(void *p)
{
    (void)p;
    return OK;
}

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    (void)stream;
    if (is_on(to) && is_on(from))
        within.times++, within.bytes += bytes;
    else if (is_on(to))
        to_device.times++, to_device.bytes += bytes;
    else
        from_device.times++, from_device.bytes += bytes;
    return OK;
}

/* ---- queues ---- */

int cuStreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    *stream = kernels;
    return OK;
}

int cuStreamDestroy_v2(void *stream)
{
    (void)stream;
    return OK;
}

int cuStreamSynchronize(void *stream)
{
    (void)stream;
    waits++;
    return OK;
}

int cuEventCreate(void **event, unsigned flags)
{
    return cuStreamCreate(event, flags);
}

int cuEventDestroy_v2(void *event)
{
    return cuStreamDestroy_v2(event);
}

int cuEventRecord(void *event, void *stream)
{
    (void)event, (void)stream;
    return OK;
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return OK;
}

/* ---- kernels ---- */

int cuModuleLoadData(void **module, const void *image)
{
    (void)image;
    *module = kernels;
    return OK;
}

int cuModuleUnload(void *module)
{
    (void)module;
    return OK;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    struct kernel *k = kernels;

    (void)module;
    while (*k->name && strncmp(k->name, name, sizeof k->name - 1))
        k++;
    snprintf(k->name, sizeof k->name, "%s", name);
    *function = k;
    return OK;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned items_x,
                   unsigned items_y, unsigned items_z, unsigned shared_bytes, void *stream,
                   void **arg, void **extra)
{
    (void)x, (void)y, (void)z, (void)items_x, (void)items_y, (void)items_z;
    (void)shared_bytes, (void)stream, (void)arg, (void)extra;
    ((struct kernel *)function)->times++;
    return OK;
}
