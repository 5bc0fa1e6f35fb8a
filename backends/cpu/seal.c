/* SPDX-License-Identifier: MIT */
/* seal.c - blocks of keys and values in the form that attention multiplies. It makes the same integers of
 * rows whenever it reads them; where a row stays and is read for every token, they are made once. */
#include <string.h>

#include "attn.h"
#include "slab.h"

int cb_cpu_seals(const struct device *d, enum kv_type k, enum kv_type v, int hd)
{
    const int half = (k == KV_F16 || k == KV_BF16) && (v == KV_F16 || v == KV_BF16);
    return cb_cpu_kern(d)->vec->attn->seal && half && hd % 32 == 0;
}

struct job {
    struct device *d;
    enum kv_type t;
    int v, hd;
    char *rows;
    float *step;
};

static void seal_block(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    const struct kern_seal *seal = cb_cpu_kern(job->d)->vec->attn->seal;
    const size_t row = cb_kv_row_bytes(job->t, job->hd), bytes = KEY_BLOCK * row;
    char *from = job->rows + (size_t)i * bytes, *codes = cb_par_scratch(job->d->par, thread);
    const char *at[KEY_BLOCK];
    const struct kern_rows rows = { .t = job->t, .n = KEY_BLOCK, .row = at, .bytes = row };

    for (int j = 0; j < KEY_BLOCK; j++)
        at[j] = from + (size_t)j * row;
    (job->v ? seal->values : seal->keys)(&rows, job->hd, codes, job->step + i * KEY_BLOCK);
    memcpy(from, codes, bytes);
}

void cb_cpu_seal(struct device *d, enum kv_type t, int v, int hd, void *rows, int n_block,
                 float *step)
{
    struct job job = { d, t, v, hd, rows, step };
    cb_par_for(d->par, n_block, seal_block, &job);
}

/* Of 32 dims from c on: pair p of a panel is dims c + p and c + 16 + p of 32 keys. */
static int16_t key_code(const int16_t *codes, int hd, int j, int c)
{
    const int pair = c / 32 * 16 + c % 16;
    return codes[j / 32 * 32 * hd + (pair * 32 + j % 32) * 2 + c % 32 / 16];
}

static int16_t value_code(const int16_t *codes, int j, int c)
{
    return codes[c / 32 * 32 * KEY_BLOCK + j / 2 * 64 + c % 32 * 2 + j % 2];
}

void cb_cpu_unseal(struct device *d, enum kv_type t, int v, int hd, const void *codes,
                   const float *step, void *rows)
{
    const size_t row = cb_kv_row_bytes(t, hd);
    char *out = cb_par_scratch(d->par, 0);
    float x[MAX_HD];

    for (int j = 0; j < KEY_BLOCK; j++) {
        for (int c = 0; c < hd; c++)
            x[c] = step[j] * (v ? value_code(codes, j, c) : key_code(codes, hd, j, c));
        cb_cpu_kern(d)->vec->encode(t, x, hd, out + (size_t)j * row);
    }
    memcpy(rows, out, KEY_BLOCK * row);
}
