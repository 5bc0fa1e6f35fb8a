/* SPDX-License-Identifier: MIT */
/* index_scan.c - scores of a trained selector's keys. An item is a run of blocks; all queries pass
 * over a block while it lies in the cache. Each key's sum runs over the heads in the query's order,
 * so it has one order however the work is cut. */
#include <string.h>

#include "base/ints.h"
#include "cpu/kern.h"
#include "cpu/vector/kern_vec.h"
#include "device/index_strips.h"
#include "index_scan.h"

enum { RUN = 4 /* blocks of an item */ };

/* ---- without dot products of bytes ---- */

static void add_head(const struct strip_query *q, int h, const char *strip, size_t line, float *out)
{
    const int32_t *code = q->code + h / STRIP_HEADS * q->quads * STRIP_HEADS + h % STRIP_HEADS;
    int32_t sum[STRIP_KEYS];

    for (int j = 0; j < STRIP_KEYS; j++)
        sum[j] = q->start[h];
    for (int c = 0; c < q->quads; c++, strip += line) {
        const int8_t *x = (const int8_t *)(code + c * STRIP_HEADS);
        const uint8_t *key = (const uint8_t *)strip;
        for (int j = 0; j < STRIP_KEYS; j++)
            sum[j] += x[0] * key[4 * j] + x[1] * key[4 * j + 1] + x[2] * key[4 * j + 2] +
                      x[3] * key[4 * j + 3];
    }
    for (int j = 0; j < STRIP_KEYS; j++)
        out[j] += q->weight[h] * (float)max_int(sum[j], 0);
}

static void add_plain(const struct strip_query *q, int from, int to, const struct strips *x,
                      float *sum)
{
    for (int i = 0; i < x->n; i++)
        for (int h = from * STRIP_HEADS; h < to * STRIP_HEADS; h++)
            add_head(q, h, x->at + (size_t)i * x->next, x->line, sum + i * STRIP_KEYS);
}

static void line_plain(const struct strip_line *q, int quads, const struct strips *x,
                       const float *sum, float *y)
{
    const int8_t *code = (const int8_t *)q->code;

    for (int i = 0; i < x->n * STRIP_KEYS; i++) {
        const char *at = x->at + (size_t)(i / STRIP_KEYS) * x->next + i % STRIP_KEYS * 4;
        int dot = q->start;
        for (int c = 0; c < 4 * quads; c++)
            dot += code[c] * ((const uint8_t *)at)[(size_t)(c / 4) * x->line + (size_t)(c % 4)];
        y[i] = sum[i] + (q->bias + q->weight * (float)dot);
    }
}

static unsigned above_plain(const float *sum, const float *step, float floor)
{
    unsigned keys = 0;

    for (int j = 0; j < STRIP_KEYS; j++)
        keys |= (unsigned)(sum[j] * step[j] >= floor) << j;
    return keys;
}

void cb_index_pack_plain(const struct strips *x, int quads, unsigned keys, char *to, size_t line)
{
    for (int j = 0; j < STRIP_KEYS; j++)
        if (keys >> j & 1) {
            for (int c = 0; c < quads; c++)
                memcpy(to + (size_t)c * line, x->at + (size_t)c * x->line + 4 * j, 4);
            to += 4;
        }
}

const struct kern_index cb_index_kern_plain = { line_plain, add_plain, above_plain,
                                                cb_index_pack_plain };

/* ---- on all threads ---- */

struct job {
    const struct kern_index *k;
    const struct index_scan *s;
    int first, n; /* queries */
};

void cb_index_open_query(const struct index_scan *s, int i, struct strip_query *q)
{
    const size_t row = (size_t)i * (size_t)s->stride;

    cb_strip_query(s->q + row, s->weight ? s->weight + row : NULL, s->n_head, s->hd,
                   (char *)s->work + (size_t)i * cb_strip_query_bytes(s->n_head, s->hd), q);
}

/* The query as cb_strip_query() left it in its part of the work space */
struct strip_query cb_index_query(const struct index_scan *s, int i)
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
        const struct strips x = cb_index_strips(s->hd, block, STRIP_BLOCK / STRIP_KEYS);
        for (int i = job->first; i < job->first + job->n; i++) {
            const struct strip_query q = cb_index_query(s, i);
            float *out = s->out + (size_t)i * s->out_stride + (size_t)b * STRIP_BLOCK;
            memset(out, 0, STRIP_BLOCK * sizeof *out);
            job->k->add(&q, 0, q.n_tile, &x, out);
            for (int j = 0; j < STRIP_BLOCK; j++)
                out[j] *= step[j];
        }
    }
}

void cb_index_scan_all(struct device *d, const struct index_scan *s, int first, int n)
{
    struct job job = { cb_cpu_vec(d)->index, s, first, n };

    cb_par_for(d->par, (s->n - 1) / (RUN * STRIP_BLOCK) + 1, scan_item, &job);
}
