/* SPDX-License-Identifier: MIT */
/* cuda_driver.c - CUDA devices: finds them, opens one, its memory and its queue. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cuda_dev.h"

/* ---- which there are ---- */

static int count(struct cuda_api *api, const char **why_not)
{
    int n = 0;

    if (!cb_cuda_api(api, why_not) || api->device_count(&n) != CUDA_OK)
        return 0;
    return n;
}

static int available(const char **why_not)
{
    struct cuda_api api;
    return count(&api, why_not) > 0;
}

static int unit_at(int j, char *text, size_t size, uint64_t *bytes)
{
    struct cuda_api api;
    char name[256] = "";
    const char *why;
    size_t all = 0;
    cuda_device d;

    if (j < 0 || j >= count(&api, &why) || api.device(&d, j))
        return 0;
    api.device_name(name, sizeof name - 1, d);
    api.device_bytes(&all, d);
    snprintf(text, size, "%s", name);
    *bytes = all;
    return 1;
}

/* ---- open ---- */

static void explain(const struct gpu *g, int status, char *text, size_t size)
{
    cb_cuda_explain(&((const struct cuda *)g->own)->api, status, text, size);
}

static int refuse(const struct gpu *g, const char *what, int status)
{
    char text[128];

    explain(g, status, text, sizeof text);
    return cb_fail(status == CUDA_NO_MEMORY ? CB_ENOMEM : CB_EUNSUPPORTED, "device %s: no %s: %s",
                   g->name, what, text);
}

static int open_stream(const struct gpu *g, struct cuda *c, struct gpu_size *size)
{
    enum { OF_ITS_OWN = 1, WITHOUT_TIME = 2 }; /* no wait for the context's default stream */
    size_t all = 0, unused = 0;
    int status;

    cb_cuda_enter(g);
    status = c->api.stream_create(&c->stream, OF_ITS_OWN);
    if (!status)
        status = c->api.stream_create(&c->ahead, OF_ITS_OWN);
    if (!status)
        status = c->api.event_create(&c->event, WITHOUT_TIME);
    if (!status)
        status = c->api.mem_info(&unused, &all);
    cb_cuda_leave(c);
    *size = (struct gpu_size){ .all = all, .free = unused, .most = all };
    return status ? refuse(g, "queue", status) : CB_OK;
}

static int open_cuda(struct gpu *g, int index, struct gpu_size *size)
{
    struct cuda *c = cb_calloc(1, sizeof *c);
    const char *why = "";
    int n, status;

    if (!c)
        return CB_ENOMEM;
    g->own = c;
    n = count(&c->api, &why);
    if (n < 1)
        return cb_fail(CB_EUNSUPPORTED, "device %s: %s", g->name, why);
    if (index >= n)
        return cb_fail(CB_EARG, "device %s: there are %d", g->name, n);
    status = c->api.device(&c->id, index);
    if (!status)
        status = c->api.retain(&c->context, c->id);
    if (status) {
        c->context = NULL;
        return refuse(g, "context", status);
    }
    return open_stream(g, c, size);
}

static void close_cuda(struct gpu *g)
{
    struct cuda *c = g->own;

    if (c->stream) {
        cb_cuda_enter(g);
        if (c->event)
            c->api.event_destroy(c->event);
        if (c->ahead)
            c->api.stream_destroy(c->ahead);
        c->api.stream_destroy(c->stream);
        cb_cuda_leave(c);
    }
    if (c->context)
        c->api.release(c->id);
    free(c);
}

static int is_memory(int status)
{
    return status == CUDA_NO_MEMORY || status == CUDA_LAUNCH_RESOURCES;
}

/* ---- memory and queue ---- */

static int alloc(struct gpu *g, size_t bytes, void **p)
{
    const struct cuda *c = cb_cuda_enter(g);
    cuda_address at = 0;
    const int status = c->api.mem_alloc(&at, bytes);

    cb_cuda_leave(c);
    *p = (void *)(uintptr_t)at;
    return status;
}

static void free_cuda(struct gpu *g, void *p)
{
    const struct cuda *c = cb_cuda_enter(g);

    c->api.mem_free((uintptr_t)p);
    cb_cuda_leave(c);
}

static void *alloc_host(struct gpu *g, size_t bytes)
{
    const struct cuda *c = cb_cuda_enter(g);
    void *p = NULL;

    if (c->api.host_alloc(&p, bytes, 0))
        p = NULL;
    cb_cuda_leave(c);
    return p;
}

static void free_host(struct gpu *g, void *p)
{
    const struct cuda *c = cb_cuda_enter(g);

    if (p)
        c->api.host_free(p);
    cb_cuda_leave(c);
}

static int pin(struct gpu *g, const void *p, size_t bytes)
{
    enum { READ_ONLY = 8 }; /* mapped files are */
    const struct cuda *c = cb_cuda_enter(g);
    const int status = c->api.host_register((void *)(uintptr_t)p, bytes, READ_ONLY);

    cb_cuda_leave(c);
    return status;
}

static void unpin(struct gpu *g, const void *p)
{
    const struct cuda *c = cb_cuda_enter(g);

    c->api.host_unregister((void *)(uintptr_t)p);
    cb_cuda_leave(c);
}

/* Kernels take the host's address; on some devices it would be another. */
static int map(struct gpu *g, const void *p, size_t bytes)
{
    enum { FOR_KERNELS = 2, NOT_SUPPORTED = 801 };
    void *host = (void *)(uintptr_t)p;
    const struct cuda *c = cb_cuda_enter(g);
    cuda_address at = 0;
    int status = c->api.host_register(host, bytes, FOR_KERNELS);

    if (!status) {
        status = c->api.host_address(&at, host, 0);
        if (!status && at != (uintptr_t)p)
            status = NOT_SUPPORTED;
        if (status) {
            c->api.stream_wait(c->ahead);
            c->api.stream_wait(c->stream);
            c->api.host_unregister(host);
        }
    }
    cb_cuda_leave(c);
    return status;
}

static int copy_in(struct gpu *g, cuda_stream s, void *to, const void *from, size_t bytes)
{
    const struct cuda *c = cb_cuda_enter(g);
    const int status = c->api.copy_async((uintptr_t)to, (uintptr_t)from, bytes, s);

    cb_cuda_leave(c);
    return status;
}

static int copy(struct gpu *g, void *to, const void *from, size_t bytes)
{
    return copy_in(g, ((const struct cuda *)g->own)->stream, to, from, bytes);
}

static int copy_ahead(struct gpu *g, void *to, const void *from, size_t bytes)
{
    return copy_in(g, ((const struct cuda *)g->own)->ahead, to, from, bytes);
}

/* What `later` gets from here on waits for what `first` has so far; if it cannot, the host does. */
static int order(struct gpu *g, cuda_stream first, cuda_stream later)
{
    const struct cuda *c = cb_cuda_enter(g);
    int status = c->api.event_record(c->event, first);

    if (!status)
        status = c->api.stream_wait_event(later, c->event, 0);
    if (status)
        c->api.stream_wait(first);
    cb_cuda_leave(c);
    return status;
}

static int ahead_after(struct gpu *g)
{
    const struct cuda *c = g->own;
    return order(g, c->stream, c->ahead);
}

static int after_ahead(struct gpu *g)
{
    const struct cuda *c = g->own;
    return order(g, c->ahead, c->stream);
}

/* What is queued begins by itself. */
static void flush(struct gpu *g)
{
    (void)g;
}

static int finish(struct gpu *g)
{
    const struct cuda *c = g->own;
    int status;

    if (!c->stream)
        return CUDA_OK;
    cb_cuda_enter(g);
    status = c->api.stream_wait(c->stream);
    cb_cuda_leave(c);
    return status;
}

static const struct driver driver = {
    .ops = "cuda",
    .has_mma = 1, /* from compute capability 7.5 on */
    .reaches_all = 1,
    .open = open_cuda,
    .close = close_cuda,
    .is_memory = is_memory,
    .explain = explain,
    .alloc = alloc,
    .free = free_cuda,
    .alloc_host = alloc_host,
    .free_host = free_host,
    .pin = pin,
    .unpin = unpin,
    .map = map,
    .copy = copy,
    .copy_ahead = copy_ahead,
    .ahead_after = ahead_after,
    .after_ahead = after_ahead,
    .flush = flush,
    .finish = finish,
    .load = cb_cuda_load,
    .kernel = cb_cuda_kernel,
    .unload = cb_cuda_unload,
    .run = cb_cuda_run,
};

static int open_device(struct device *d, const struct device_want *want)
{
    return cb_gpu_open(d, want, &driver);
}

const struct backend cb_backend_cuda = {
    .name = "cuda",
    .text = "NVIDIA devices from compute capability 7.5 on; cuda:1 is the second",
    .open = open_device,
    .close = cb_gpu_close,
    .available = available,
    .own_memory = 1,
    .unit_at = unit_at,
};
