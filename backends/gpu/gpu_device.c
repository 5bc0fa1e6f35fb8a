/* SPDX-License-Identifier: MIT */
/* gpu_device.c - opens and closes an accelerator, and fills its op table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "gpu.h"
#include "gpu_ahead.h"
#include "gpu_cache.h"
#include "gpu_index.h"
#include "gpu_mirror.h"
#include "gpu_stream.h"

static int64_t reserve(struct device *d, int n_tok, int max_in, int max_out, int n_head, int hd,
                       int n_ctx)
{
    struct gpu *g = cb_gpu_of(d);
    return g->host.ops->reserve(&g->host, n_tok, max_in, max_out, n_head, hd, n_ctx);
}

static void fill(struct gpu *g)
{
    g->ops = (struct ops){ .name = g->driver->ops,
                           .memory = &cb_gpu_memory,
                           .load = cb_gpu_load,
                           .unload = cb_gpu_unload,
                           .reserve = reserve,
                           .limits = cb_gpu_limits,
                           .matmul = cb_gpu_matmul,
                           .matmul_glu = cb_gpu_matmul_glu,
                           .get_rows = cb_gpu_get_rows,
                           .rmsnorm = cb_gpu_rmsnorm,
                           .layernorm = cb_gpu_layernorm,
                           .rope = cb_gpu_rope,
                           .scale = cb_gpu_scale,
                           .sink = cb_gpu_sink,
                           .glu = cb_gpu_glu,
                           .add = cb_gpu_add,
                           .attention = cb_gpu_attention,
                           .score = cb_gpu_score,
                           .join = cb_gpu_join,
                           .kv_encode = cb_gpu_kv_encode,
                           .kv_decode = cb_gpu_kv_decode,
                           .nearest = cb_gpu_nearest,
                           .best_head = cb_gpu_best_head,
                           .topk = cb_gpu_topk,
                           .sketch = cb_gpu_sketch,
                           .head_topk = cb_gpu_head_topk,
                           .sketch_topk = cb_gpu_sketch_topk,
                           .bounds = cb_gpu_bounds,
                           .page_scores = cb_gpu_page_scores,
                           .page_topk = cb_gpu_page_topk,
                           .strips_put = cb_gpu_strips_put,
                           .index_topk = cb_gpu_index_topk,
                           .mean_rows = cb_gpu_mean_rows,
                           .block_topk = cb_gpu_block_topk,
                           .short_conv = cb_gpu_short_conv,
                           .decays = cb_gpu_decays,
                           .recurrence = cb_gpu_recurrence };
}

/* By default a tenth of the memory is left to the driver and others. */
static int set_limit(struct gpu *g, uint64_t working_set, const struct gpu_size *size)
{
    enum { LEAST = 1 << 20 };

    if (working_set > size->all)
        return cb_fail(CB_EARG, "device %s: a working set of %llu bytes; it has %llu", g->name,
                       (unsigned long long)working_set, (unsigned long long)size->all);
    if (working_set && working_set < LEAST)
        return cb_fail(CB_EARG, "device %s: a working set of %llu bytes; it needs %d", g->name,
                       (unsigned long long)working_set, LEAST);
    g->traffic.limit_bytes = working_set ? working_set : size->free / 10 * 9;
    g->most_block = (size_t)size->most;
    return CB_OK;
}

/* The kernels that every model needs; the others are loaded when a weight or a session asks. */
static int open_kernels(struct gpu *g)
{
    const struct gpu_options any = { 0 };

    return cb_gpu_program(g, GPU_VECTOR, any) && cb_gpu_program(g, GPU_SELECT, any) &&
                   (!g->driver->has_mma || cb_gpu_program(g, GPU_GEMM, any))
               ? CB_OK
               : CB_EUNSUPPORTED;
}

static int open_steps(struct gpu *g, struct device *d, const struct device_want *want)
{
    struct gpu_size size = { 0 };

    snprintf(g->name, sizeof g->name, "%s:%d", d->name, d->index);
    g->stream_kv = want->stream_kv;
    g->log = want->log;
    g->log_arg = want->log_arg;
    if (want->cache_dir && !(g->cache_dir = strdup(want->cache_dir)))
        return cb_fail(CB_ENOMEM, "out of memory");
    TRY(g->driver->open(g, d->index, &size));
    TRY(set_limit(g, want->working_set, &size));
    TRY(cb_gpu_mirror_open(g));
    g->make_room = cb_gpu_make_room;
    g->store_new_rows = cb_gpu_store_new_rows;
    g->host = (struct device){ .name = "cpu", .par = d->par, .lock = d->lock };
    TRY(cb_backend_cpu.open(&g->host, want));
    return open_kernels(g);
}

void cb_gpu_close(struct device *d)
{
    struct gpu *g = cb_gpu_of(d);

    if (g->own)
        g->driver->finish(g);
    cb_gpu_stream_close(g);
    cb_gpu_rows_ahead_close(g);
    cb_gpu_cache_close(g);
    cb_gpu_chosen_close(g);
    cb_gpu_mirror_close(g);
    cb_gpu_constants_close(g);
    cb_gpu_free_all(g);
    cb_gpu_free_programs(g);
    if (g->host.impl)
        cb_backend_cpu.close(&g->host);
    if (g->own)
        g->driver->close(g);
    pthread_mutex_destroy(&g->wait);
    free(g->weight);
    free(g->cache_dir);
    free(g);
}

int cb_gpu_open(struct device *d, const struct device_want *want, const struct driver *driver)
{
    struct gpu *g = cb_calloc(1, sizeof *g);
    int err;

    if (!g)
        return CB_ENOMEM;
    d->impl = g;
    g->driver = driver;
    pthread_mutex_init(&g->wait, NULL);
    err = open_steps(g, d, want);
    if (err) {
        cb_gpu_close(d);
        return err;
    }
    fill(g);
    d->ops = &g->ops;
    d->isa = driver->ops;
    return CB_OK;
}
