/* SPDX-License-Identifier: MIT */
/* device.c - the registry of devices. */
#include "device.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/suggest.h"
#include "par/affinity.h"
#include "par/fair_lock.h"

static const struct backend *const registry[] = { &cb_backend_cpu, &cb_backend_ref };

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

static const struct backend *find(const char *name)
{
    const struct backend *b;
    for (int i = 0; (b = cb_backend_at(i)); i++)
        if (!strcmp(b->name, name))
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

static int unknown(const char *name)
{
    char list[128];

    cb_name_list(list, sizeof list, name_at, NULL);
    return cb_fail(CB_EARG, "device %s: unknown; there are %s", name, list);
}

int cb_device_open_team(const char *name, const struct team_params *t,
                        const struct device_want *want, struct device **out)
{
    static const struct device_want any = { 0 };
    const struct backend *b = find(name ? name : "cpu");
    const char *why = "";
    struct device *d;
    int err;

    if (!b)
        return unknown(name);
    if (!b->available(&why))
        return cb_fail(CB_EUNSUPPORTED, "device %s: %s", b->name, why);
    d = cb_calloc(1, sizeof *d);
    if (!d)
        return CB_ENOMEM;
    d->name = b->name;
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

int cb_device_open(const char *name, int n_threads, struct device **out)
{
    return cb_device_open_team(name, &(struct team_params){ .n_threads = n_threads }, NULL, out);
}

void cb_device_close(struct device *d)
{
    if (!d)
        return;
    find(d->name)->close(d);
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
