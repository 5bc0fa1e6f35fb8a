/* SPDX-License-Identifier: MIT */
/* sketch_mass.c - the attention that blocks of sketched keys hold for some queries of a block. An
 * item is a block of queries of a KV head, one query after the other. */
#include <string.h>

#include "attn_tile.h"
#include "base/ints.h"
#include "cpu/kern.h"
#include "device/prompt_blocks.h"
#include "device/sketch.h"

enum { AT_ONCE = 8 }; /* blocks */

struct job {
    struct par *par;
    const struct kern_sketch *k;
    const struct block_mass *m;
    int group;
    struct sketch_strips strips; /* all */
};

size_t cb_cpu_sketch_mass_scratch(int hd, int n_head, int n_ctx)
{
    const size_t heads = (size_t)n_head, cols = (size_t)n_ctx / SKETCH_BLOCK + 1;

    return heads * ((size_t)cb_sketch_pad(hd) * sizeof(float) +
                    AT_ONCE * SKETCH_BLOCK * sizeof(int16_t) +
                    cols * (sizeof(int16_t) + sizeof(uint32_t))) +
           4 * 64;
}

/* Adds what n blocks of KV head kv hold for query i to the rows `row` of the query heads. */
static void add_query(const struct job *job, int kv, int i, int n, int row, char *mem)
{
    const struct block_mass *m = job->m;
    const int group = job->group, pad = cb_sketch_pad(m->hd), head = kv * group;
    const size_t bytes = cb_sketch_bytes(m->bits, m->hd);
    const uint8_t *block = m->sketch + (size_t)kv * m->head_bytes;
    float *query = cb_take(&mem, (size_t)(group * pad) * sizeof *query);
    int16_t *score = cb_take(&mem, (size_t)(group * AT_ONCE * SKETCH_BLOCK) * sizeof *score);
    int16_t *top = cb_take(&mem, (size_t)(group * n) * sizeof *top);
    uint32_t *sum = cb_take(&mem, (size_t)(group * n) * sizeof *sum);

    for (int h = 0; h < group; h++)
        cb_sketch_query(m->q + (int64_t)i * m->q_stride + (int64_t)(head + h) * m->hd, m->hd,
                        m->scale, query + h * pad);
    for (int b = 0; b < n; b += AT_ONCE, block += AT_ONCE * bytes) {
        const int some = min_int(AT_ONCE, n - b);
        job->k->scan(m->bits, m->hd, &job->strips, block, some, query, group, score,
                     AT_ONCE * SKETCH_BLOCK);
        for (int x = 0; x < group * some; x++) {
            const int h = x / some, j = x % some, at = h * n + b + j;
            sum[at] =
                job->k->weigh(score + (h * AT_ONCE + j) * SKETCH_BLOCK, SKETCH_BLOCK, &top[at]);
        }
    }
    for (int h = 0; h < group; h++)
        cb_sketch_shares(top + h * n, sum + h * n, n,
                         m->out + ((size_t)(head + h) * (size_t)m->n_row + (size_t)row) *
                                      (size_t)m->n_col);
}

static void mass_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    const struct block_mass *m = job->m;
    const int kv = item % m->n_kv, row = item / m->n_kv, own = m->first / SKETCH_BLOCK + row;
    const int begin = max_int(0, own * SKETCH_BLOCK - m->first);
    const int end = min_int(m->n_tok, (own + 1) * SKETCH_BLOCK - m->first);

    for (int h = kv * job->group; h < (kv + 1) * job->group; h++)
        memset(m->out + ((size_t)h * (size_t)m->n_row + (size_t)row) * (size_t)m->n_col, 0,
               (size_t)m->n_col * sizeof *m->out);
    for (int i = end - 1; own && i >= begin; i -= m->stride)
        add_query(job, kv, i, own, row, cb_par_scratch(job->par, thread));
}

void cb_cpu_sketch_mass(struct device *d, const struct block_mass *m)
{
    struct job job = {
        .par = d->par, .k = cb_cpu_vec(d)->sketch, .m = m, .group = m->n_head / m->n_kv
    };

    cb_sketch_all_strips(m->hd, &job.strips);
    cb_par_for(d->par, m->n_kv * m->n_row, mass_item, &job);
}
