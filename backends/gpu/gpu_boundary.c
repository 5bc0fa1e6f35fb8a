/* SPDX-License-Identifier: MIT */
/* gpu_boundary.c - the memory of an accelerator as the engine sees it. The tables of the device are
 * of the thread that holds its lock. */
#include <assert.h>
#include <string.h>

#include "base/err.h"
#include "gpu.h"
#include "gpu_ahead.h"
#include "gpu_cache.h"
#include "gpu_stream.h"

static struct gpu *mine(const struct device *d)
{
    assert(cb_device_is_mine(d));
    return cb_gpu_of(d);
}

static void *memory_alloc(struct device *d, size_t bytes)
{
    return cb_gpu_alloc_work(mine(d), bytes);
}

static uint64_t memory_spare(const struct device *d)
{
    return cb_gpu_spare(mine(d));
}

static void memory_free(struct device *d, void *p)
{
    mine(d)->split.x = NULL; /* which may lie there */
    cb_gpu_free(mine(d), p);
}

static void memory_copy(struct device *d, void *to, size_t to_stride, const void *from,
                        size_t from_stride, size_t bytes, int n)
{
    struct gpu *g = mine(d);
    const int from_on = cb_gpu_is_on(g, from), to_on = cb_gpu_is_on(g, to);

    if (!from_on && !to_on)
        cb_gpu_finish(g);
    for (size_t i = 0; n > 0 && i < (size_t)n; i++) {
        char *t = (char *)to + i * to_stride;
        const char *f = (const char *)from + i * from_stride;
        if (from_on && to_on)
            cb_gpu_move(g, t, f, bytes);
        else if (from_on)
            cb_gpu_fetch(g, t, f, bytes);
        else if (to_on)
            cb_gpu_send(g, t, f, bytes);
        else
            memcpy(t, f, bytes);
    }
    if (!from_on || !to_on)
        cb_gpu_finish(g);
}

/* The counts of the rows that kernels have brought */
static void count_came(struct gpu *g)
{
    struct gpu_came *came = &g->came;

    if (!came->due || g->status)
        return;
    g->traffic.gathered_rows += came->host[0] - came->had[0];
    g->traffic.kv_in_bytes += came->host[1] - came->had[1];
    memcpy(came->had, came->host, sizeof came->had);
    came->due = 0;
}

int cb_gpu_check(struct gpu *g)
{
    int status;

    if (g->came.due)
        cb_gpu_fetch(g, g->came.host, g->came.on, sizeof g->came.had);
    cb_gpu_logits_home(g);
    cb_gpu_found_home(g); /* waits */
    count_came(g);
    status = g->status;
    cb_gpu_empty_stage(g);
    g->n_back = 0;
    if (!g->status)
        return CB_OK;
    cb_gpu_meet_ahead(g);
    cb_gpu_finish(g);
    g->status = 0;
    cb_gpu_mirror_drop(g); /* what they hold is not known */
    cb_gpu_chosen_drop(g);
    cb_gpu_cache_close(g);
    cb_gpu_constants_forget(g);
    cb_gpu_stream_close(g);
    cb_gpu_rows_ahead_close(g);
    return cb_fail(status, "%s", g->error);
}

static int memory_wait(struct device *d)
{
    return cb_gpu_check(mine(d));
}

static int memory_watch(struct device *d, const void *rows, size_t row_bytes, size_t n_row)
{
    return cb_gpu_watch(mine(d), rows, row_bytes, n_row);
}

static void memory_unwatch(struct device *d, const void *rows)
{
    struct gpu *g = mine(d);

    cb_gpu_chosen_unwatch(g, rows);
    cb_gpu_cache_leave(g, rows);
    cb_gpu_rows_ahead_forget(g, cb_gpu_area(g, rows));
    cb_gpu_unwatch(g, rows);
}

static void memory_wrote(struct device *d, const void *from, size_t bytes)
{
    struct gpu *g = mine(d);

    cb_gpu_cache_leave(g, from);
    cb_gpu_wrote(g, from, bytes);
    cb_gpu_chosen_wrote(g, from, bytes);
}

static void memory_ahead(struct device *d, const struct kv_run *run, int n)
{
    if (n && run->idx)
        cb_gpu_chosen_bring(mine(d), run, n);
    else
        cb_gpu_rows_ahead(mine(d), run, n);
}

static void memory_traffic(const struct device *d, struct device_traffic *out)
{
    *out = mine(d)->traffic;
}

static struct device *memory_host(struct device *d)
{
    return &cb_gpu_of(d)->host;
}

const struct device_memory cb_gpu_memory = {
    .alloc = memory_alloc,
    .spare = memory_spare,
    .free = memory_free,
    .copy = memory_copy,
    .wait = memory_wait,
    .watch = memory_watch,
    .unwatch = memory_unwatch,
    .wrote = memory_wrote,
    .ahead = memory_ahead,
    .weights_share = cb_gpu_weights_share,
    .weights_ahead = cb_gpu_weights_ahead,
    .weights_plan = cb_gpu_weights_plan,
    .traffic = memory_traffic,
    .host = memory_host,
};
