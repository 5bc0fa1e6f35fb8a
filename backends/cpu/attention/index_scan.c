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

enum {
    RUN = 4,              /* blocks of an item */
    KEYS = 2 * STRIP_KEYS /* that meet heads at once */
};

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

static int reach_plain(const float *sum, const float *step, int n, float floor, int from,
                       int32_t *at)
{
    int m = 0;

    for (int j = 0; j < n; j++) {
        at[m] = from + j;
        m += sum[j] * step[j] >= floor;
    }
    return m;
}

static void first_plain(const struct strip_line *q, int quads, const uint8_t *upper, int n,
                        float *y)
{
    const int8_t *code = (const int8_t *)q->code;

    for (int j = 0; j < n; j++, upper += 2 * quads) {
        int dot = 0;
        for (int i = 0; i < 2 * quads; i++)
            dot += code[i] * (upper[i] & 15) + code[2 * quads + i] * (upper[i] >> 4);
        y[j] = q->bias + q->weight * cb_index_dot(q, dot);
    }
}

static void open_plain(const uint8_t *const *key, size_t lower, int quads, char *to, size_t line)
{
    for (int j = 0; j < STRIP_KEYS; j++, to += 4)
        for (int i = 0; i < 2 * quads; i++) {
            const int up = key[j][i], low = key[j][lower + (size_t)i];
            char *at = to + (size_t)(i / 4) * line + i % 4;
            *at = (char)((up & 15) << 4 | (low & 15));
            at[(size_t)(quads / 2) * line] = (char)((up & 0xf0) | low >> 4);
        }
}

const struct kern_index cb_index_kern_plain = { first_plain, open_plain, line_plain, add_plain,
                                                reach_plain };

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

struct strips cb_index_strips(const struct kern_index *k, int hd, const char *block, int from,
                              struct strip_room *to)
{
    const int quads = cb_strip_pad(hd) / 4;
    const size_t line = 2 * STRIP_KEYS * 4, half = cb_strip_half(hd);
    const uint8_t *key[STRIP_KEYS];

    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < STRIP_KEYS; j++)
            key[j] = (const uint8_t *)block + (size_t)(from + i * STRIP_KEYS + j) * half;
        k->open(key, cb_strip_lower(hd), quads, to->at + i * STRIP_KEYS * 4, line);
    }
    return (struct strips){ to->at, line, STRIP_KEYS * 4, 2 };
}

static void scan_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    const struct index_scan *s = job->s;
    const int all = (s->n - 1) / STRIP_BLOCK + 1, to = min_int(all, (item + 1) * RUN);
    struct strip_room room;

    (void)thread;
    for (int at = item * RUN * STRIP_BLOCK; at < to * STRIP_BLOCK; at += KEYS) {
        const char *block = cb_index_block(s, at / STRIP_BLOCK);
        const float *step = cb_strip_steps(s->hd, block) + at % STRIP_BLOCK;
        const struct strips x = cb_index_strips(job->k, s->hd, block, at % STRIP_BLOCK, &room);
        for (int i = job->first; i < job->first + job->n; i++) {
            const struct strip_query q = cb_index_query(s, i);
            float *out = s->out + (size_t)i * s->out_stride + at;
            memset(out, 0, KEYS * sizeof *out);
            job->k->add(&q, 0, q.n_tile, &x, out);
            for (int j = 0; j < KEYS; j++)
                out[j] *= step[j];
        }
    }
}

void cb_index_scan_all(struct device *d, const struct index_scan *s, int first, int n)
{
    struct job job = { cb_cpu_vec(d)->index, s, first, n };

    cb_par_for(d->par, (s->n - 1) / (RUN * STRIP_BLOCK) + 1, scan_item, &job);
}
