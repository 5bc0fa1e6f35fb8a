/* SPDX-License-Identifier: MIT */
/* cl_boundary.c - the memory of an OpenCL device as the engine sees it. */
#include <string.h>

#include "base/err.h"
#include "cl.h"
#include "cl_mirror.h"

static void *memory_alloc(struct device *d, size_t bytes)
{
    return cb_cl_alloc(cb_cl_of(d), bytes);
}

static void memory_free(struct device *d, void *p)
{
    cb_cl_free(cb_cl_of(d), p);
}

static void memory_copy(struct device *d, void *to, size_t to_stride, const void *from,
                        size_t from_stride, size_t bytes, int n)
{
    struct cl *c = cb_cl_of(d);
    const int from_on = cb_cl_is_on(c, from), to_on = cb_cl_is_on(c, to);

    if (!from_on && !to_on)
        cb_cl_finish(c);
    for (size_t i = 0; n > 0 && i < (size_t)n; i++) {
        char *t = (char *)to + i * to_stride;
        const char *f = (const char *)from + i * from_stride;
        if (from_on && to_on)
            cb_cl_move(c, t, f, bytes);
        else if (from_on)
            cb_cl_fetch(c, t, f, bytes);
        else if (to_on)
            cb_cl_send(c, t, f, bytes);
        else
            memcpy(t, f, bytes);
    }
    if (!from_on || !to_on)
        cb_cl_finish(c);
}

int cb_cl_check(struct cl *c)
{
    int status;

    cb_cl_finish(c);
    status = c->status;
    cb_cl_empty_stage(c);
    c->n_back = 0;
    if (!c->status)
        return CB_OK;
    c->status = 0;
    cb_cl_mirror_drop(c); /* what it holds is not known */
    return cb_fail(status, "%s", c->error);
}

static int memory_wait(struct device *d)
{
    return cb_cl_check(cb_cl_of(d));
}

static int memory_watch(struct device *d, const void *rows, size_t row_bytes, size_t n_row)
{
    return cb_cl_watch(cb_cl_of(d), rows, row_bytes, n_row);
}

static void memory_unwatch(struct device *d, const void *rows)
{
    cb_cl_unwatch(cb_cl_of(d), rows);
}

static void memory_wrote(struct device *d, const void *from, size_t bytes)
{
    cb_cl_wrote(cb_cl_of(d), from, bytes);
}

static void memory_traffic(const struct device *d, struct device_traffic *out)
{
    *out = cb_cl_of(d)->traffic;
}

const struct device_memory cb_cl_memory = {
    .alloc = memory_alloc,
    .free = memory_free,
    .copy = memory_copy,
    .wait = memory_wait,
    .watch = memory_watch,
    .unwatch = memory_unwatch,
    .wrote = memory_wrote,
    .traffic = memory_traffic,
};
