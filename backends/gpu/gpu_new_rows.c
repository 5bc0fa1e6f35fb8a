/* SPDX-License-Identifier: MIT */
/* gpu_new_rows.c - new rows of keys and values, of a decoded token or of a chunk of a prompt, which
 * wait for the next command and are stored by one kernel then. */
#include "gpu.h"

enum { LEAST = 64, CALLS = 16 }; /* rows of a table; calls of a chunk that it has room for */

/* Rows of a new table for calls of n rows; a chunk's takes a quarter of the stage at most. */
static int table_rows(const struct gpu *g, int n)
{
    const size_t room = cb_gpu_stage_room(g) / 4 / sizeof *g->new_rows.host;
    const size_t most = (size_t)CALLS * (size_t)n;

    return n == 1 ? LEAST : (int)(room < most ? room : most);
}

int cb_gpu_new_rows_fit(struct gpu *g, enum kv_type t, const float *x, int hd, int n)
{
    struct gpu_new_rows *r = &g->new_rows;
    void *host = NULL;

    if (g->status || !g->driver->reaches_all || !cb_gpu_is_on(g, x))
        return 0;
    if (r->n && (r->n + n > r->cap || r->type != (int)t || r->hd != hd))
        cb_gpu_store_new_rows(g);
    if (!r->n) {
        r->cap = table_rows(g, n);
        if (r->cap < n)
            return 0;
        r->on = cb_gpu_room_beside(g, (size_t)r->cap * sizeof *r->host, &host);
        r->host = host;
        r->type = (int)t;
        r->hd = hd;
    }
    return r->on != NULL;
}

void cb_gpu_new_rows(struct gpu *g, const float *x, int stride, void *on, size_t row, int n)
{
    struct gpu_new_rows *r = &g->new_rows;

    if (g->status || !on)
        return;
    for (int i = 0; i < n; i++) {
        uint64_t *to = r->host[r->n + i];
        to[0] = (uintptr_t)(x + (ptrdiff_t)i * stride);
        to[1] = (uintptr_t)on + (size_t)i * row;
        to[2] = to[3] = 0;
    }
    r->last = r->n;
    r->row = row;
    r->n += n;
}

void cb_gpu_store_new_rows(struct gpu *g)
{
    struct gpu_new_rows *r = &g->new_rows;
    const int n = r->n;
    const int64_t all = (int64_t)n * (r->type == KV_Q8_0 ? r->hd / 32 : r->hd);
    struct gpu_program *p;

    if (!n)
        return;
    r->n = 0;
    p = g->status ? NULL : cb_gpu_program(g, GPU_VECTOR, (struct gpu_options){ 0 });
    if (!p)
        return;
    cb_gpu_send(g, r->on, r->host, (size_t)n * sizeof *r->host);
    const struct gpu_arg arg[] = { GPU_I(r->type), GPU_I(r->hd), GPU_P(r->on), GPU_L(all) };
    cb_gpu_run_each(g, p, "encode_rows", all, arg, 4);
}
