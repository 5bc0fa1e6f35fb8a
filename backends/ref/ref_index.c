/* SPDX-License-Identifier: MIT */
/* ref_index.c - scores of a trained selector's keys, head by head. */
#include "device/index_strips.h"
#include "ref_sketch.h"

/* The product of the codes of key j of a block and of head h */
static int dot(const struct strip_query *q, int hd, const uint8_t *block, int j, int h)
{
    const int tile = h / STRIP_HEADS;
    const int8_t *code = (const int8_t *)(q->code + (size_t)tile * (size_t)q->quads * STRIP_HEADS);
    int sum = 0;

    for (int c = 0; c < hd; c++)
        sum += code[(c / 4 * STRIP_HEADS + h % STRIP_HEADS) * 4 + c % 4] *
               (cb_strip_code(hd, block, j, c) - 128);
    return sum;
}

static void scan_query(void *ctx, int i, int thread)
{
    const struct index_scan *s = ctx;
    const size_t row = (size_t)i * (size_t)s->stride;
    struct strip_query q;

    (void)thread;
    cb_strip_query(s->q + row, s->weight ? s->weight + row : NULL, s->n_head, s->hd,
                   (char *)s->work + (size_t)i * cb_strip_query_bytes(s->n_head, s->hd), &q);
    for (int j = 0; j < s->n; j++) {
        const uint8_t *block =
            (const uint8_t *)s->keys + (size_t)(j / STRIP_BLOCK) * cb_strip_bytes(s->hd);
        double sum = 0;
        for (int h = 0; h < s->n_head; h++) {
            const int x = dot(&q, s->hd, block, j % STRIP_BLOCK, h);
            sum += (double)q.weight[h] * (x > 0 ? x : 0);
        }
        s->out[(size_t)i * s->out_stride + (size_t)j] =
            (float)(sum * (double)cb_strip_steps(s->hd, block)[j % STRIP_BLOCK]);
    }
}

void cb_ref_index_scan(struct device *d, const struct index_scan *s)
{
    struct index_scan copy = *s;

    cb_par_for(d->par, s->n_tok, scan_query, &copy);
}
