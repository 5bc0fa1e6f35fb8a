/* SPDX-License-Identifier: MIT */
/* idle_cuda.c - a CUDA driver whose device does nothing: copies and kernels are only counted, so
 * what a prompt or a token takes on it is the host's own time, which perf can attribute. Results
 * are small random numbers, and a search finds random slots, so policies choose something.
 * IDLE_CUDA_KEEP percent (90) of the numbers and slots are those of the last token.
 *
 *   make bench/idle/libcuda.so.1
 *   LD_LIBRARY_PATH=bench/idle perf record -g ./ctxbank bench -m MODEL -p 4096 -n 0 --device cuda:0
 *
 * At the end it writes to stderr how often the host launched, copied and waited, and how long it
 * took to make up results: take that off the host's time. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, MOST_KERNEL = 512, OF_A_TOKEN = 1 << 20 };

#define BEGIN ((uint64_t)1 << 44) /* of the device's addresses, where the host has none */
#define BYTES ((uint64_t)1 << 37)

static struct {
    uint64_t times, bytes;
} to_device, from_device, within;
static uint64_t used, waits, orders;
static double made_up_s;
static struct { /* the last search of sketches: groups of pieces of slots, KV heads */
    unsigned piece, n_kv;
} search;
static struct { /* what was copied to the device last */
    const int32_t *from;
    uint64_t to;
} sent;
static struct { /* the last lists that were picked: where they are, and what pick_pages was told */
    uint64_t at, n_list;
    const int32_t *of;
} picked;
enum { N_PAGE = 0, PAGE = 9, LO, K, BEFORE, AFTER }; /* as in struct gpu_pages */
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
            "idle device: %" PRIu64 " launches, %" PRIu64 " waits, %" PRIu64
            " orders of queues, copies to it %" PRIu64 " (%" PRIu64 " bytes), from it %" PRIu64
            " (%" PRIu64 "), within %" PRIu64 " (%" PRIu64 "); %.3f s for results\n",
            launches, waits, orders, to_device.times, to_device.bytes, from_device.times,
            from_device.bytes, within.times, within.bytes, made_up_s);
    for (int i = 0; i < MOST_KERNEL; i++)
        if (kernels[i].times)
            fprintf(stderr, "  %s %" PRIu64 "\n", kernels[i].name, kernels[i].times);
}

/* ---- results ---- */

static uint32_t mixed(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    return (uint32_t)((x ^ x >> 29) * 0xbf58476d1ce4e5b9u >> 32);
}

/* The same as at other times for the same key, for most keys */
static uint32_t random_of(uint64_t key, uint64_t time)
{
    static int keep = -1;
    const char *text = keep < 0 ? getenv("IDLE_CUDA_KEEP") : NULL;
    const uint32_t now = mixed(key ^ ++time << 40);

    if (keep < 0)
        keep = text ? (int)strtol(text, NULL, 10) : 90;
    return now % 100 < (uint32_t)keep ? mixed(key) : now;
}

/* Numbers between 1/8 and 1/4 as halves, of either sign */
static void make_rows(uint64_t *to, size_t n)
{
    static uint64_t x = 1;

    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        to[i] = (x & 0x83ff83ff83ff83ffu) | 0x3000300030003000u;
    }
}

/* Numbers between 1/8 and 1 as halves, smaller ones as floats, of either sign */
static void make_numbers(uint16_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t x = random_of((uintptr_t)(to + i), waits);
        to[i] = (uint16_t)((x & 0x8000) | (0x3000 + x % 0xc00));
    }
}

/* Lists of n slots each, ascending, none of the first 64: to[n_kv][1 + n] */
static void make_lists(int32_t *to, size_t n)
{
    const size_t slots = search.piece > 2 ? (search.piece - 2) * (size_t)1024 : 0;
    const size_t each = n ? slots / n : 0;

    for (unsigned h = 0; h < search.n_kv; h++) {
        *to++ = each ? (int32_t)n : 0;
        for (size_t i = 0; i < n; i++)
            *to++ = (int32_t)(64 + i * each +
                              (each ? random_of((uint64_t)h << 32 | i, waits) % each : 0));
    }
}

static int n_picked(void)
{
    return picked.of ? picked.of[BEFORE] + picked.of[K] * picked.of[PAGE] + picked.of[AFTER] : 0;
}

/* Entry i of picked lists: their number, then slots, of which k pages are random ones */
static int32_t entry_of_picked(int i)
{
    const int32_t *x = picked.of;
    const int at = i % (n_picked() + 1), j = at - 1 - x[BEFORE], p = j / x[PAGE];
    const int each = x[N_PAGE] / x[K];

    if (!at)
        return n_picked();
    if (j < 0)
        return x[LO] + j;
    if (j >= x[K] * x[PAGE])
        return x[LO] + (x[N_PAGE] - x[K]) * x[PAGE] + j;
    return x[LO] + j % x[PAGE] +
           (p * each +
            (int)(random_of((uint64_t)(i - j) << 32 | (uint64_t)p, waits) % (uint32_t)each)) *
               x[PAGE];
}

/* Those of the lists that lie in what is copied from the device */
static void make_picked(int32_t *to, uint64_t from, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *to; i++) {
        const uint64_t at = from + i * sizeof *to - picked.at;
        if (at < picked.n_list * (uint64_t)(n_picked() + 1) * sizeof *to)
            to[i] = entry_of_picked((int)(at / sizeof *to));
    }
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void make_up(void *to, uint64_t from, size_t bytes)
{
    const double start = now_s();

    if (search.n_kv && bytes > search.n_kv * sizeof(int32_t))
        make_lists(to, bytes / sizeof(int32_t) / search.n_kv - 1);
    else if (bytes > OF_A_TOKEN)
        make_rows(to, bytes / sizeof(uint64_t));
    else
        make_numbers(to, bytes / 2);
    search.n_kv = 0;
    make_picked(to, from, bytes);
    made_up_s += now_s() - start;
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

int cuMemHostGetDevicePointer_v2(uint64_t *p, void *host, unsigned flags)
{
    (void)flags;
    *p = (uintptr_t)host;
    return OK;
}

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    (void)stream;
    if (is_on(to) && is_on(from))
        within.times++, within.bytes += bytes;
    else if (is_on(to))
        to_device.times++, to_device.bytes += bytes, sent.to = to, sent.from = (void *)from;
    else
        from_device.times++, from_device.bytes += bytes, make_up((void *)to, from, bytes);
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
    orders++;
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
    struct kernel *k = function;

    (void)z, (void)items_x, (void)items_y, (void)items_z;
    (void)shared_bytes, (void)stream, (void)extra;
    k->times++;
    if (!strcmp(k->name, "sketch_pick") || !strcmp(k->name, "index_scan")) /* 1024, 128 slots */
        search.piece = *k->name == 's' ? x : x / 8, search.n_kv = y;
    if (!strcmp(k->name, "pick_pages") || !strcmp(k->name, "list_pages")) /* of a list, a piece */
        picked.at = *(uint64_t *)arg[*k->name == 'p' ? 2 : 5],
        picked.of = sent.to == *(uint64_t *)arg[0] ? sent.from : NULL,
        picked.n_list = picked.of ? (*k->name == 'p' ? x : y) : 0;
    return OK;
}
