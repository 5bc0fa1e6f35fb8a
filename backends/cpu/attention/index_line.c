/* SPDX-License-Identifier: MIT */
/* index_line.c - a vector that stands for several heads of a trained selector's query. A head gives
 * a key weight * max(0, x) with x = q . key. What is linear in x can be summed over heads before
 * keys come: sum over heads of weight * (a * x + b), where a and b are fitted to some keys. A head
 * whose products are positive as often as negative has a of 1/2, which is exact but for |x| / 2. */
#include "index_scan.h"

#include <string.h>

enum { PARTS = 4, KEYS = 2 * STRIP_KEYS };

/* Sums over keys, from which a head's a and b follow */
struct fit {
    double x, y, xx, xy; /* y: max(0, x) */
};

static void add_keys(const float *x, struct fit *f)
{
    double sum = 0, above = 0, xx = 0, yy = 0;

    for (int j = 0; j < KEYS; j++) {
        const double v = (double)x[j], y = v > 0 ? v : 0;
        sum += v;
        above += y;
        xx += v * v;
        yy += y * y;
    }
    *f = (struct fit){ f->x + sum, f->y + above, f->xx + xx, f->xy + yy };
}

/* Head h meets keys of the four places. */
static struct fit fit_head(const struct kern_index *k, const struct strip_query *q,
                           const struct strips *x, int h)
{
    const int32_t *code = q->code + h / STRIP_HEADS * q->quads * STRIP_HEADS + h % STRIP_HEADS;
    const float none[KEYS] = { 0 };
    struct strip_line one = { .start = q->start[h], .weight = 1 };
    struct fit f = { 0 };

    for (int c = 0; c < q->quads; c++)
        one.code[c] = code[c * STRIP_HEADS];
    for (int i = 0; i < PARTS; i++) {
        float y[KEYS];
        k->line(&one, q->quads, &x[i], none, y);
        add_keys(y, &f);
    }
    return f;
}

/* Heads from..to-1 of query q, with slopes a[] and distances b[] -> *to */
static void put_line(const struct strip_query *q, int hd, int from, const float *a, const float *b,
                     struct strip_line *out)
{
    float sum[STRIP_LINE_HD] = { 0 }, bias = 0;

    for (int h = from; h < q->n_tile * STRIP_HEADS; h++) {
        const int32_t *code = q->code + h / STRIP_HEADS * q->quads * STRIP_HEADS + h % STRIP_HEADS;
        const float w = q->weight[h] * a[h];
        for (int c = 0; c < hd; c++)
            sum[c] += w * (float)((const int8_t *)(code + c / 4 * STRIP_HEADS))[c % 4];
        bias += q->weight[h] * b[h];
    }
    memset(out, 0, sizeof *out);
    out->weight = cb_strip_codes(sum, hd, 1, out->code, &out->start);
    out->bias = bias;
}

void cb_index_lines(const struct kern_index *k, const struct index_scan *s,
                    const struct strip_query *q, int n, const int *from, int n_line,
                    struct strip_line *line)
{
    float a[STRIP_MOST_HEADS], b[STRIP_MOST_HEADS];
    struct strip_room room[PARTS];
    struct strips x[PARTS];

    for (int i = 0; i < PARTS; i++) /* from four places of the first n */
        x[i] =
            cb_index_strips(k, s->hd, cb_index_block(s, n / STRIP_BLOCK * i / PARTS), 0, &room[i]);
    for (int h = 0; h < q->n_tile * STRIP_HEADS; h++) {
        const struct fit f = fit_head(k, q, x, h);
        const double m = PARTS * KEYS, spread = f.xx - f.x * f.x / m;
        a[h] = spread > 0 ? (float)((f.xy - f.x * f.y / m) / spread) : 0.5f;
        b[h] = (float)(f.y / m - (double)a[h] * f.x / m);
    }
    for (int g = 0; g < n_line; g++)
        put_line(q, s->hd, from[g] * STRIP_HEADS, a, b, &line[g]);
}
