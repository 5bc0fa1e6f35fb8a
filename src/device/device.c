/* SPDX-License-Identifier: MIT */
/* device.c - the registry of devices. */
#include "device.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/suggest.h"
#include "base/words.h"
#include "config.h"
#include "limits.h"
#include "par/affinity.h"
#include "par/fair_lock.h"

const char *const cb_limit_name[LIMIT_COUNT] = {
    [LIMIT_READ_1] = "read by one",    [LIMIT_READ] = "read",   [LIMIT_GATHER_128] = "gather 128",
    [LIMIT_GATHER_512] = "gather 512", [LIMIT_F32] = "f32 FMA", [LIMIT_BF16] = "bf16 dot",
    [LIMIT_INT8] = "int8 dot",         [LIMIT_IN] = "copy in",  [LIMIT_OUT] = "copy out",
    [LIMIT_LAUNCH] = "empty kernel",
};

static const struct backend *const registry[] = {
    &cb_backend_cpu,
#ifdef HAVE_CUDA
    &cb_backend_cuda,
#endif
#ifdef HAVE_OPENCL
    &cb_backend_opencl,
#endif
    &cb_backend_ref,
};

const struct kv_type_info cb_kv_type[KV_TYPE_COUNT] = {
    [KV_F32] = { "f32", 1, 4 },
    [KV_F16] = { "f16", 1, 2 },
    [KV_BF16] = { "bf16", 1, 2 },
    [KV_Q8_0] = { "q8_0", 32, 34 },
};

int cb_kv_type_find(const char *name)
{
    for (int t = 0; t < KV_TYPE_COUNT; t++)
        if (!strcmp(cb_kv_type[t].name, name))
            return t;
    return -1;
}

const struct backend *cb_backend_at(int i)
{
    const int n = (int)(sizeof registry / sizeof *registry);
    return i >= 0 && i < n ? registry[i] : NULL;
}

/* "opencl:1" -> the backend, and 1 -> *index; "opencl" is its device 0. NULL: unknown */
static const struct backend *backend_of(const char *name, int *index)
{
    const size_t n = strcspn(name, ":");
    const struct backend *b;
    char *end;
    long at = 0;

    if (name[n]) {
        at = strtol(name + n + 1, &end, 10);
        if (name[n + 1] < '0' || name[n + 1] > '9' || *end || at > 255)
            return NULL;
    }
    *index = (int)at;
    for (int i = 0; (b = cb_backend_at(i)); i++)
        if (cb_is_word(b->name, name, n))
            return b;
    return NULL;
}

static void free_device(struct device *d)
{
    cb_par_free(d->par);
    cb_fair_lock_free(d->lock);
    free(d);
}

static const char *name_at(const void *ctx, int i)
{
    const struct backend *b = cb_backend_at(i);

    (void)ctx;
    return b ? b->name : NULL;
}

/* 1: a device that some programs have, and this one has not */
static int is_left_out(const char *name)
{
    static const char *const some[] = { "cuda", "opencl" };
    const size_t n = strcspn(name, ":");
    int is = 0;

    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        is |= cb_is_word(some[i], name, n);
    for (int i = 0; cb_backend_at(i); i++)
        is &= strlen(cb_backend_at(i)->name) != n || strncmp(cb_backend_at(i)->name, name, n) != 0;
    return is;
}

static int unknown(const char *name)
{
    char list[128];

    cb_name_list(list, sizeof list, name_at, NULL);
    if (is_left_out(name))
        return cb_fail(CB_EARG, "device %s: this program was built without it; there are %s", name,
                       list);
    return cb_fail(CB_EARG, "device %s: unknown; there are %s", name, list);
}

int cb_device_check(const char *name)
{
    const char *why = "";
    int index;
    const struct backend *b = backend_of(name, &index);

    if (!b && strcmp(name, "auto") != 0)
        return unknown(name);
    return !b || b->available(&why) ? CB_OK
                                    : cb_fail(CB_EUNSUPPORTED, "device %s: %s", b->name, why);
}

int cb_device_open_team(const char *name, const struct team_params *t,
                        const struct device_want *want, struct device **out)
{
    static const struct device_want any = { 0 };
    int index = 0, err;
    const struct backend *b = backend_of(name ? name : "cpu", &index);
    const char *why = "";
    struct device *d;

    if (!b)
        return unknown(name);
    if (want && want->working_set && !b->own_memory)
        return cb_fail(CB_EARG, "device %s: a working set: its memory is the host's", b->name);
    if (want && want->stream_kv && !b->own_memory)
        return cb_fail(CB_EARG, "device %s: streamed keys and values: its memory is the host's",
                       b->name);
    if (!b->available(&why))
        return cb_fail(CB_EUNSUPPORTED, "device %s: %s", b->name, why);
    d = cb_calloc(1, sizeof *d);
    if (!d)
        return CB_ENOMEM;
    d->name = b->name;
    d->index = index;
    err = cb_fair_lock_new(&d->lock);
    if (!err)
        err = cb_par_new_team(t, &d->par);
    if (!err)
        err = b->open(d, want ? want : &any);
    if (err) {
        free_device(d);
        return err;
    }
    *out = d;
    return CB_OK;
}

void cb_device_close(struct device *d)
{
    int index;

    if (!d)
        return;
    backend_of(d->name, &index)->close(d);
    free_device(d);
}

int cb_device_lock(struct device *d)
{
    if (!cb_fair_lock_take(d->lock))
        return cb_fail(CB_EARG, "called from a callback: the model is in use");
    return CB_OK;
}

void cb_device_unlock(struct device *d)
{
    cb_fair_lock_give(d->lock);
}

int cb_device_is_mine(const struct device *d)
{
    return cb_fair_lock_is_mine(d->lock);
}

int cb_device_lock_memory(struct device *d)
{
    return d->ops->memory && cb_fair_lock_take(d->lock);
}

int cb_device_limits(struct device *d, double *what)
{
    for (int l = 0; l < LIMIT_COUNT; l++)
        what[l] = 0;
    return d->ops->limits ? d->ops->limits(d, what) : CB_OK;
}

/* ---- memory ---- */

void *cb_device_alloc(struct device *d, size_t n, size_t size)
{
    const struct device_memory *m = d->ops->memory;

    if (!m)
        return cb_alloc_aligned(n, size);
    if (size && n > SIZE_MAX / size) {
        cb_fail(CB_ENOMEM, "out of memory");
        return NULL;
    }
    return m->alloc(d, n * size);
}

void cb_device_free(struct device *d, void *p)
{
    if (!p)
        return;
    if (d->ops->memory)
        d->ops->memory->free(d, p);
    else
        free(p);
}

uint64_t cb_device_spare(const struct device *d)
{
    return d->ops->memory ? d->ops->memory->spare(d) : UINT64_MAX;
}

void cb_device_copy_rows(struct device *d, void *to, size_t to_stride, const void *from,
                         size_t from_stride, size_t bytes, int n)
{
    if (d->ops->memory) {
        d->ops->memory->copy(d, to, to_stride, from, from_stride, bytes, n);
        return;
    }
    for (size_t i = 0; n > 0 && i < (size_t)n; i++)
        memcpy((char *)to + i * to_stride, (const char *)from + i * from_stride, bytes);
}

void cb_device_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    cb_device_copy_rows(d, to, bytes, from, bytes, bytes, 1);
}

int cb_device_wait(struct device *d)
{
    return d->ops->memory ? d->ops->memory->wait(d) : CB_OK;
}

struct device *cb_device_host(struct device *d)
{
    const struct device_memory *m = d->ops->memory;

    return !m ? d : m->host ? m->host(d) : NULL;
}

struct device_traffic cb_device_traffic(const struct device *d)
{
    struct device_traffic t = { 0 };

    if (d->ops->memory && d->ops->memory->traffic)
        d->ops->memory->traffic(d, &t);
    return t;
}
