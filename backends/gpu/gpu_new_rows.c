/* SPDX-License-Identifier: MIT */
/* gpu_new_rows.c - a decoded token's rows of keys and values, which wait for the next command and
 * are stored by one kernel then. */
#include "gpu.h"

int cb_gpu_new_row_fits(struct gpu *g, enum kv_type t, const float *x, int hd)
{
    struct gpu_new_rows *r = &g->new_rows;
    const size_t bytes = GPU_NEW_ROWS * sizeof *r->host;
    void *host = NULL;

    if (g->status || !g->driver->reaches_all || !cb_gpu_is_on(g, x))
        return 0;
    if (r->n == GPU_NEW_ROWS || (r->n && (r->type != (int)t || r->hd != hd)))
        cb_gpu_store_new_rows(g);
    if (!r->n) {
        r->on = cb_gpu_room_beside(g, bytes, &host);
        r->host = host;
        r->type = (int)t;
        r->hd = hd;
    }
    return r->on != NULL;
}

void cb_gpu_new_row(struct gpu *g, const float *x, void *on)
{
    struct gpu_new_rows *r = &g->new_rows;

    if (g->status || !on)
        return;
    r->host[r->n][0] = (uintptr_t)x;
    r->host[r->n][1] = (uintptr_t)on;
    r->host[r->n][2] = r->host[r->n][3] = 0;
    r->n++;
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
