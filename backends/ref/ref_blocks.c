/* SPDX-License-Identifier: MIT */
/* ref_blocks.c - attention estimated between blocks of queries and keys, and summed along lines, a
 * pair at a time, in doubles. */
#include "ref_blocks.h"

#include <math.h>
#include <string.h>

#include "device/prompt_blocks.h"
#include "ref_rows.h"
#include "ref_sketch.h"

enum { MAX_HD = KV_MAX_HD };

/* e[I][J] of the header, without the scale */
static double product(const struct block_mass *s, int h, int I, int J)
{
    const struct kv_run *run = &s->run[h / (s->n_head / s->n_kv)];
    double sum = 0;
    float k[MAX_HD];

    for (int a = 0; a < s->stride; a++) {
        const int i = s->stride * I + s->stride - 1 - a - s->first, j = s->stride * J + a;
        const float *q = s->q + (int64_t)i * s->q_stride + (int64_t)h * s->hd;
        if (i < 0 || i >= s->n_tok || j >= run->n)
            continue;
        cb_ref_kv_row(s->type_k, run->k, j, s->hd, k);
        for (int c = 0; c < s->hd; c++)
            sum += (double)q[c] * (double)k[c];
    }
    return sum;
}

static void add_group(const struct block_mass *s, int h, int I, float *out)
{
    const double scale = (double)s->scale / s->stride;
    const int per_block = KV_PREPACK / s->stride;
    double max = -INFINITY, sum = 0;

    for (int J = 0; J <= I; J++)
        max = fmax(max, scale * product(s, h, I, J));
    for (int J = 0; J <= I; J++)
        sum += exp(scale * product(s, h, I, J) - max);
    for (int J = 0; J <= I; J++)
        out[J / per_block] =
            (float)((double)out[J / per_block] + exp(scale * product(s, h, I, J) - max) / sum);
}

static void mass_row(void *ctx, int item, int thread)
{
    const struct block_mass *s = ctx;
    const int h = item / s->n_row, row = item % s->n_row, n = s->first + s->n_tok;
    const int begin = (s->first / KV_PREPACK + row) * KV_PREPACK, end = begin + KV_PREPACK;
    float *out = s->out + (size_t)item * (size_t)s->n_col;

    (void)thread;
    memset(out, 0, (size_t)s->n_col * sizeof *out);
    for (int i = begin; i < end && i < n; i += s->stride)
        if (i + s->stride > s->first)
            add_group(s, h, i / s->stride, out);
}

void cb_ref_block_mass(struct device *d, const struct block_mass *s)
{
    struct block_mass copy = *s;

    if (s->bits) {
        cb_ref_sketch_mass(d, s);
        return;
    }
    cb_par_for(d->par, s->n_head * s->n_row, mass_row, &copy);
}

/* ---- lines ---- */

static double logit(const struct line_sums *s, int h, int i, int j)
{
    const float *q = s->q + (int64_t)i * s->q_stride + (int64_t)h * s->hd;
    double x = 0;
    float k[MAX_HD];

    cb_ref_kv_row(s->type_k, s->run[h / (s->n_head / s->n_kv)].k, j, s->hd, k);
    for (int c = 0; c < s->hd; c++)
        x += (double)q[c] * (double)k[c];
    x *= (double)s->scale;
    return s->softcap > 0.0f ? (double)s->softcap * tanh(x / (double)s->softcap) : x;
}

static void line_head(void *ctx, int h, int thread)
{
    const struct line_sums *s = ctx;
    const int n = s->run[h / (s->n_head / s->n_kv)].n;
    float *column = s->column + (int64_t)h * s->out_stride;
    float *diagonal = s->diagonal + (int64_t)h * s->out_stride;

    (void)thread;
    memset(column, 0, (size_t)n * sizeof *column);
    memset(diagonal, 0, (size_t)n * sizeof *diagonal);
    for (int i = 0; i < s->n_tok; i++) {
        const int own = n - s->n_tok + i;
        double max = -INFINITY, sum = 0;
        for (int j = 0; j <= own; j++)
            max = fmax(max, logit(s, h, i, j));
        for (int j = 0; j <= own; j++)
            sum += exp(logit(s, h, i, j) - max);
        for (int j = 0; j <= own; j++) {
            const double p = exp(logit(s, h, i, j) - max) / sum;
            column[j] = (float)((double)column[j] + p);
            diagonal[own - j] = (float)((double)diagonal[own - j] + p);
        }
    }
}

void cb_ref_line_sums(struct device *d, const struct line_sums *s)
{
    struct line_sums copy = *s;
    cb_par_for(d->par, s->n_head, line_head, &copy);
}
