/* SPDX-License-Identifier: MIT */
/* index_scan.c - scores of a trained selector's keys. An item is a run of blocks; all queries pass
 * over a block while it lies in the cache. Each key's sum runs over the heads in the query's order,
 * so it has one order however the work is cut. */
#include <string.h>

#include "base/ints.h"
#include "cpu/kern.h"
#include "cpu/vector/kern_vec.h"
#include "device/index_strips.h"

enum { RUN = 4 /* blocks of an item */ };

/* ---- without dot products of bytes ---- */

static void add_head(const struct strip_query *q, int h, const uint8_t *key, float *out)
{
    const int32_t *code = q->code + h / STRIP_HEADS * q->quads * STRIP_HEADS + h % STRIP_HEADS;
    int32_t sum[STRIP_KEYS];

    for (int j = 0; j < STRIP_KEYS; j++)
        sum[j] = q->start[h];
    for (int c = 0; c < q->quads; c++, key += 4 * STRIP_KEYS) {
        const int8_t *x = (const int8_t *)(code + c * STRIP_HEADS);
        for (int j = 0; j < STRIP_KEYS; j++)
            sum[j] += x[0] * key[4 * j] + x[1] * key[4 * j + 1] + x[2] * key[4 * j + 2] +
                      x[3] * key[4 * j + 3];
    }
    for (int j = 0; j < STRIP_KEYS; j++)
        out[j] += q->weight[h] * (float)max_int(sum[j], 0);
}

static void add_plain(const struct strip_query *q, int from, int to, const void *strips, int n,
                      float *sum)
{
    const uint8_t *key = strips;

    for (int i = 0; i < n; i++, key += (size_t)q->quads * 4 * STRIP_KEYS, sum += STRIP_KEYS)
        for (int h = from * STRIP_HEADS; h < to * STRIP_HEADS; h++)
            add_head(q, h, key, sum);
}

const struct kern_index cb_index_kern_plain = { add_plain };

/* ---- on all threads ---- */

struct job {
    const struct kern_index *k;
    const struct index_scan *s;
};

/* The query as cb_strip_query() left it in its part of the work space */
static struct strip_query query_of(const struct index_scan *s, int i)
{
    const int quads = cb_strip_pad(s->hd) / 4, n_tile = (s->n_head - 1) / STRIP_HEADS + 1;
    const int32_t *code =
        (const int32_t *)(const void *)((const char *)s->work +
                                        (size_t)i * cb_strip_query_bytes(s->n_head, s->hd));
    const int32_t *start = code + (size_t)n_tile * (size_t)quads * STRIP_HEADS;

    return (struct strip_query){ quads, n_tile, code, start,
                                 (const float *)(start + n_tile * STRIP_HEADS) };
}

static void scan_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    const struct index_scan *s = job->s;
    const int all = (s->n - 1) / STRIP_BLOCK + 1, to = min_int(all, (item + 1) * RUN);

    (void)thread;
    for (int b = item * RUN; b < to; b++) {
        const char *block = (const char *)s->keys + (size_t)b * cb_strip_bytes(s->hd);
        const float *step = cb_strip_steps(s->hd, block);
        for (int i = 0; i < s->n_tok; i++) {
            const struct strip_query q = query_of(s, i);
            float *out = s->out + (size_t)i * s->out_stride + (size_t)b * STRIP_BLOCK;
            memset(out, 0, STRIP_BLOCK * sizeof *out);
            job->k->add(&q, 0, q.n_tile, block, STRIP_BLOCK / STRIP_KEYS, out);
            for (int j = 0; j < STRIP_BLOCK; j++)
                out[j] *= step[j];
        }
    }
}

void cb_cpu_index_scan(struct device *d, const struct index_scan *s)
{
    struct job job = { cb_cpu_vec(d)->index, s };

    if (s->n < 1)
        return;
    for (int i = 0; i < s->n_tok; i++) {
        const size_t row = (size_t)i * (size_t)s->stride;
        struct strip_query q;
        cb_strip_query(s->q + row, s->weight ? s->weight + row : NULL, s->n_head, s->hd,
                       (char *)s->work + (size_t)i * cb_strip_query_bytes(s->n_head, s->hd), &q);
    }
    cb_par_for(d->par, (s->n - 1) / (RUN * STRIP_BLOCK) + 1, scan_item, &job);
}
