/* SPDX-License-Identifier: MIT */
/* gpu_lists.c - the lists of runs: where their rows are mirrored, and where those lists are that
 * searches have left on the device. */
#include "gpu_lists.h"

int cb_gpu_run_areas(const struct gpu *g, const struct kv_run *run, struct gpu_area **k,
                     struct gpu_area **v, int *at)
{
    if (!run->idx || run->kivi || run->given || run->n < 1)
        return 0;
    *k = cb_gpu_area(g, run->k);
    *v = cb_gpu_area(g, run->v);
    if (!*k || !*v)
        return 0;
    *at = (int)((size_t)((const uint8_t *)run->k - (*k)->rows) / (*k)->row_bytes);
    return (const uint8_t *)run->v == (*v)->rows + (size_t)*at * (*v)->row_bytes;
}

const int32_t *cb_gpu_found_list(const struct gpu *g, const struct kv_run *run)
{
    const struct gpu_found *f = &g->found;
    const intptr_t at =
        f->to ? ((intptr_t)run->idx - (intptr_t)f->to) / (intptr_t)sizeof *f->to : -1;
    const intptr_t h = f->to ? at / f->stride : 0;

    return run->idx && at >= 0 && at == h * f->stride && h < f->n_list && run->n <= f->n
               ? f->on + h * (f->n + 1) + 1
               : NULL;
}

void cb_gpu_list_home(struct gpu *g, const struct kv_run *run)
{
    if (run->idx && g->lists_sent == g->emptied + 1 && !cb_gpu_found_list(g, run))
        cb_gpu_finish(g);
}

int cb_gpu_list_end(const struct gpu *g, const struct kv_run *run)
{
    return cb_gpu_found_list(g, run) ? g->found.end - (g->found.n - run->n)
                                     : run->idx[run->n - 1] + 1;
}

int cb_gpu_is_mirrored(struct gpu *g, const struct kv_run *run)
{
    struct gpu_area *k, *v;
    int first, end;

    if (run->kivi || !cb_gpu_run_areas(g, run, &k, &v, &first))
        return 0;
    end = first + cb_gpu_list_end(g, run);
    return cb_gpu_mirror_has_all(g, k, end) && cb_gpu_mirror_has_all(g, v, end);
}

int cb_gpu_list_stays(struct gpu *g, const struct kv_run *run)
{
    const int is_found = cb_gpu_found_list(g, run) != NULL;

    if (is_found && cb_gpu_is_mirrored(g, run))
        return 1;
    if (is_found)
        cb_gpu_found_home(g);
    cb_gpu_list_home(g, run);
    return 0;
}
