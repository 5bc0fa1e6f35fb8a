/* SPDX-License-Identifier: MIT */
/* prepack.c - blocks of keys and values as the integers that attention multiplies. Attention can
 * compute these integers from rows at each read. Rows that stay and are read for every token are
 * converted once. */
#include <string.h>

#include "cpu/kern.h"
#include "cpu/vector/kern_vec.h"

int cb_cpu_can_prepack(const struct device *d, enum kv_type k, enum kv_type v, int hd)
{
    const struct kern_prepack *const *prepack = cb_cpu_vec(d)->attn->prepack;
    return prepack[k] && prepack[v] && hd % 32 == 0;
}

struct job {
    struct device *d;
    enum kv_type t;
    int v, hd;
    char *rows;
    float *step;
};

static void prepack_block(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    const struct kern_prepack *prepack = cb_cpu_vec(job->d)->attn->prepack[job->t];
    float *step = job->step ? job->step + i * KEY_BLOCK : NULL;
    const size_t row = cb_kv_row_bytes(job->t, job->hd), bytes = KEY_BLOCK * row;
    char *from = job->rows + (size_t)i * bytes, *codes = cb_par_scratch(job->d->par, thread);
    const char *at[KEY_BLOCK];
    const struct kern_rows rows = { .t = job->t, .n = KEY_BLOCK, .row = at, .bytes = row };

    for (int j = 0; j < KEY_BLOCK; j++)
        at[j] = from + (size_t)j * row;
    (job->v ? prepack->values : prepack->keys)(&rows, job->hd, codes, step);
    memcpy(from, codes, bytes);
}

void cb_cpu_prepack(struct device *d, enum kv_type t, int v, int hd, void *rows, int n_block,
                    float *step)
{
    struct job job = { d, t, v, hd, rows, step };
    cb_par_for(d->par, n_block, prepack_block, &job);
}

void cb_cpu_prepack_row(struct device *d, enum kv_type t, int v, int hd, const void *row, int j,
                        void *codes, float *step)
{
    const struct kern_prepack *prepack = cb_cpu_vec(d)->attn->prepack[t];
    (v ? prepack->put_value : prepack->put_key)(t, row, hd, j, codes, step);
}

void cb_cpu_unpack(struct device *d, enum kv_type t, int v, int hd, const void *codes,
                   const float *step, int j, int n, void *rows)
{
    const struct kern_prepack *prepack = cb_cpu_vec(d)->attn->prepack[t];
    const size_t row = cb_kv_row_bytes(t, hd);
    char *out = rows == codes ? cb_par_scratch(d->par, 0) : rows;

    for (int i = 0; i < n; i++)
        (v ? prepack->open_value : prepack->open_key)(t, codes, step, hd, j + i,
                                                      out + (size_t)i * row);
    if (out != rows)
        memcpy(rows, out, (size_t)n * row);
}
