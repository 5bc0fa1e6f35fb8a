/* SPDX-License-Identifier: MIT */
/* stream_blend.c - several residual streams, which each block reads as one and adds to by weights
 * of the token's own (struct stream_blend). The host computes them: they are a few numbers a token.
 */
#include "stream_blend.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "product.h"

/* ---- weights of a token ---- */

struct blending {
    const struct hparams *hp;
    const struct stream_blend *b;
    const float *x; /* [n_tok][n_stream][n_embd] */
    float *y;       /* the same, where streams are added to */
    float *number;  /* [n_tok][n_number] products; then weights to read by, and to add by */
    int n_number;
    float *in;       /* [n_tok][n_embd] what the block reads */
    const float *by; /* [n_tok][n_embd] what it adds */
};

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* Divides the rows of c[n][n], or its columns, by their sums. */
static void normalise(float *c, int n, int columns, float eps)
{
    const int along = columns ? n : 1, across = columns ? 1 : n;

    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int j = 0; j < n; j++)
            sum += c[i * across + j * along];
        for (int j = 0; j < n; j++)
            c[i * across + j * along] /= sum + eps;
    }
}

/* c[n][n] -> the softmax of each row, made doubly stochastic: columns first, then rows and columns
 * in turn (Sinkhorn and Knopp 1967) */
static void sinkhorn(float *c, int n, int n_step, float eps)
{
    for (int i = 0; i < n; i++) {
        float *row = c + i * n, max = row[0], sum = 0;
        for (int j = 1; j < n; j++)
            max = row[j] > max ? row[j] : max;
        for (int j = 0; j < n; j++)
            sum += row[j] = expf(row[j] - max);
        for (int j = 0; j < n; j++)
            row[j] = row[j] / sum + eps;
    }
    normalise(c, n, 1, eps);
    for (int i = 1; i < n_step; i++) {
        normalise(c, n, 0, eps);
        normalise(c, n, 1, eps);
    }
}

/* The products of a token's streams -> its weights */
static void weigh(const struct blending *w, const float *x, float *m)
{
    const int n = w->hp->n_stream, width = n * w->hp->n_embd;
    const struct stream_blend *b = w->b;
    const float eps = w->hp->compress.stream_eps;
    double squares = 0;
    float length;

    for (int i = 0; i < width; i++)
        squares += (double)x[i] * (double)x[i];
    length = (float)(1 / sqrt(squares / width + (double)w->hp->norm_eps));
    for (int i = 0; i < w->n_number; i++)
        m[i] = m[i] * length * b->scale[i < n ? 0 : i < 2 * n ? 1 : 2] + b->base[i];
    for (int i = 0; i < n; i++)
        m[i] = sigmoid(m[i]) + eps;
    if (w->n_number == n)
        return;
    for (int i = n; i < 2 * n; i++)
        m[i] = 2 * sigmoid(m[i]);
    sinkhorn(m + 2 * n, n, w->hp->compress.n_step, eps);
}

/* ---- reading and adding ---- */

static void read_token(void *ctx, int t, int thread)
{
    const struct blending *w = ctx;
    const int n = w->hp->n_stream, ne = w->hp->n_embd;
    const float *x = w->x + (size_t)t * (size_t)n * (size_t)ne;
    float *m = w->number + (size_t)t * (size_t)w->n_number, *in = w->in + (size_t)t * (size_t)ne;

    (void)thread;
    weigh(w, x, m);
    for (int j = 0; j < ne; j++)
        in[j] = m[0] * x[j];
    for (int i = 1; i < n; i++)
        for (int j = 0; j < ne; j++)
            in[j] += m[i] * x[(size_t)i * (size_t)ne + (size_t)j];
}

/* Some columns of all streams at a time, since each new stream is a sum of all old ones */
static void add_token(void *ctx, int t, int thread)
{
    enum { SOME = 64 };
    const struct blending *w = ctx;
    const int n = w->hp->n_stream, ne = w->hp->n_embd;
    const float *post = w->number + (size_t)t * (size_t)w->n_number + n, *comb = post + n;
    const float *by = w->by + (size_t)t * (size_t)ne;
    float *x = w->y + (size_t)t * (size_t)n * (size_t)ne, sum[MOST_STREAMS][SOME];

    (void)thread;
    for (int from = 0; from < ne; from += SOME) {
        const int some = ne - from < SOME ? ne - from : SOME;
        for (int j = 0; j < n; j++) {
            for (int k = 0; k < some; k++)
                sum[j][k] = post[j] * by[from + k];
            for (int i = 0; i < n; i++) {
                const float c = comb[i * n + j], *old = x + (size_t)i * (size_t)ne + from;
                for (int k = 0; k < some; k++)
                    sum[j][k] += c * old[k];
            }
        }
        for (int j = 0; j < n; j++)
            memcpy(x + (size_t)j * (size_t)ne + from, sum[j], (size_t)some * sizeof *x);
    }
}

int cb_stream_blend_read(struct cb_session *s, const struct stream_blend *b, const float *x, int n,
                         int bits, const float **out)
{
    const struct hparams *hp = &s->model->hp;
    struct stream_work *w = &s->w.streams;
    const int n_number = b->fn.n_out;
    const struct mm mm = { &b->fn, NULL, w->weight, n_number, 0, bits };
    float *in = w->host[2] ? w->host[2] : w->plane;
    struct blending c = { hp, b, x, NULL, w->weight, n_number, in, NULL };

    cb_product(s, &mm, 1, x, n);
    TRY(cb_device_wait(s->dev)); /* the host reads what the device has computed */
    cb_par_for(s->dev->par, n, read_token, &c);
    if (in != w->plane)
        cb_device_copy(s->dev, w->plane, in, (size_t)n * (size_t)hp->n_embd * sizeof *in);
    *out = w->plane;
    return CB_OK;
}

void cb_stream_blend_add(struct cb_session *s, float *x, const float *by, int n)
{
    const struct hparams *hp = &s->model->hp;
    struct stream_work *w = &s->w.streams;
    const float *added = w->host[2] ? w->host[2] : by;
    struct blending c = {
        hp, NULL, x, x, w->weight, (2 + hp->n_stream) * hp->n_stream, NULL, added
    };

    if (added != by)
        cb_device_copy(s->dev, w->host[2], by, (size_t)n * (size_t)hp->n_embd * sizeof *by);
    cb_par_for(s->dev->par, n, add_token, &c);
}
