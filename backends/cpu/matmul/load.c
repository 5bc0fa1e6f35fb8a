/* SPDX-License-Identifier: MIT */
/* load.c - packs a weight when the model is opened, and reads rows of the file's form. */
#include "base/err.h"
#include "cpu/kern.h"
#include "cpu/slab.h"
#include "pass.h"

static const uint8_t *weight_row(const struct weight *w, int64_t i)
{
    return (const uint8_t *)w->raw + (size_t)i * cb_row_bytes(w->type, w->n_in);
}

struct pack_job {
    const struct weight *w;
    size_t group_bytes;
    int fours;
};

static void pack_group(void *ctx, int i, int thread)
{
    const struct pack_job *job = ctx;
    const uint8_t *rows[MM_ROWS];

    (void)thread;
    for (int r = 0; r < MM_ROWS; r++) {
        const int64_t row = (int64_t)i * MM_ROWS + r;
        rows[r] = row < job->w->n_out ? weight_row(job->w, row) : NULL;
    }
    cb_mm_pack(job->w->type, rows, job->w->n_in, job->fours,
               (uint8_t *)job->w->packed + (size_t)i * job->group_bytes);
}

int cb_cpu_load(struct device *d, struct weight *w)
{
    struct cpu *c = d->impl;
    struct pack_job job = { w, cb_mm_group_bytes(w->type, w->n_in),
                            mm_form(c->kern->mm, w->type) == MM_HALVED };
    int64_t err = cb_cpu_matmul_reserve(d, MM_TILE_MAX, w->n_in);

    if (err < 0)
        return (int)err;
    TRY(cb_cpu_panels_reserve(d, w));
    w->packed_bytes = job.group_bytes * (size_t)mm_n_group(w);
    w->packed = cb_slab_alloc(&c->slabs, w->packed_bytes);
    if (!w->packed)
        return CB_ENOMEM;
    cb_par_for(d->par, mm_n_group(w), pack_group, &job);
    return CB_OK;
}

void cb_cpu_unload(struct device *d, struct weight *w)
{
    struct cpu *c = d->impl;

    if (w->packed)
        cb_slab_release(&c->slabs, w->packed);
    w->packed = NULL;
    w->packed_bytes = 0;
}

void cb_cpu_get_rows(struct device *d, const struct weight *w, const int32_t *ids, int n, float *y)
{
    (void)d;
    for (int i = 0; i < n; i++)
        cb_dtype[w->type].to_f32(weight_row(w, ids[i]), y + (size_t)i * (size_t)w->n_in, w->n_in);
}
