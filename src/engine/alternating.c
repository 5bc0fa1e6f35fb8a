/* SPDX-License-Identifier: MIT */
/* alternating.c - residual streams of which one goes through a layer (struct altup). The host
 * computes what a layer does to them: a few numbers a token say how they are mixed. */
#include "alternating.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "norm_rows.h"
#include "product.h"

/* ---- rows of streams, each of which a thread takes ---- */

struct alternation {
    const struct hparams *hp;
    const struct altup *y;
    const float *number; /* [n_tok][n] products with the router */
    float *x;            /* [n_tok][n][n_embd] */
    float *by;           /* [n_tok][n_embd] what comes of them, or what is added to them */
};

static float *streams_of(const struct alternation *a, int t)
{
    return a->x + (size_t)t * (size_t)a->hp->n_stream * (size_t)a->hp->n_embd;
}

static float *row_of(const struct alternation *a, int t)
{
    return a->by + (size_t)t * (size_t)a->hp->n_embd;
}

/* coefficients[n_out][n] times tanh(number / n_embd) */
static void multiply(const struct alternation *a, int t, const float *coefficients, int n_out,
                     float *out)
{
    const int n = a->hp->n_stream;
    float m[MOST_STREAMS];

    for (int i = 0; i < n; i++)
        m[i] = tanhf(a->number[(size_t)t * (size_t)n + (size_t)i] / (float)a->hp->n_embd);
    for (int i = 0; i < n_out; i++) {
        out[i] = 0;
        for (int j = 0; j < n; j++)
            out[i] += coefficients[i * n + j] * m[j];
    }
}

/* Some columns of all streams at a time, since each new stream is a sum of all old ones */
static void predict_row(void *ctx, int t, int thread)
{
    enum { SOME = 64 };
    const struct alternation *a = ctx;
    const int n = a->hp->n_stream, ne = a->hp->n_embd;
    float c[MOST_STREAMS * MOST_STREAMS], sum[MOST_STREAMS][SOME], *x = streams_of(a, t);

    (void)thread;
    multiply(a, t, a->y->predict, n * n, c);
    for (int from = 0; from < ne; from += SOME) {
        const int some = ne - from < SOME ? ne - from : SOME;
        for (int i = 0; i < n; i++) {
            memcpy(sum[i], x + i * ne + from, (size_t)some * sizeof *x);
            for (int j = 0; j < n; j++)
                for (int k = 0; k < some; k++)
                    sum[i][k] += c[i * n + j] * x[j * ne + from + k];
        }
        for (int i = 0; i < n; i++)
            memcpy(x + i * ne + from, sum[i], (size_t)some * sizeof *x);
    }
    memcpy(row_of(a, t), x + a->hp->active * ne, (size_t)ne * sizeof *x);
}

static void correct_row(void *ctx, int t, int thread)
{
    const struct alternation *a = ctx;
    const int n = a->hp->n_stream, ne = a->hp->n_embd;
    float c[MOST_STREAMS], *x = streams_of(a, t), *by = row_of(a, t);
    const float *active = x + a->hp->active * ne;

    (void)thread;
    multiply(a, t, a->y->correct, n, c);
    for (int k = 0; k < ne; k++)
        by[k] -= active[k];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < ne; k++)
            x[i * ne + k] += by[k] * (c[i] + 1);
    for (int k = 0; k < ne; k++)
        by[k] = active[k] * a->y->scale[k];
}

static void tell_row(void *ctx, int t, int thread)
{
    const struct alternation *a = ctx;
    const int ne = a->hp->n_embd;
    const float *by = row_of(a, t);
    float *x = streams_of(a, t);

    (void)thread;
    for (int i = 1; i < a->hp->n_stream; i++)
        for (int k = 0; k < ne; k++)
            x[i * ne + k] += by[k];
}

static double mean_square(const float *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum / n;
}

/* All streams get the length of the first one. */
static void level_row(void *ctx, int t, int thread)
{
    const struct alternation *a = ctx;
    const int ne = a->hp->n_embd;
    float *x = streams_of(a, t);
    const double length = sqrt(mean_square(x, ne));

    (void)thread;
    for (int i = 1; i < a->hp->n_stream; i++) {
        float *y = x + i * ne;
        const float by = (float)(length / sqrt(fmax(mean_square(y, ne), 1e-5)));
        for (int k = 0; k < ne; k++)
            y[k] *= by;
    }
}

static void average_row(void *ctx, int t, int thread)
{
    const struct alternation *a = ctx;
    const int n = a->hp->n_stream, ne = a->hp->n_embd;
    const float *x = streams_of(a, t);
    float *out = row_of(a, t);

    level_row(ctx, t, thread);
    for (int k = 0; k < ne; k++) {
        out[k] = x[k];
        for (int i = 1; i < n; i++)
            out[k] += x[i * ne + k];
        out[k] /= (float)n;
    }
}

/* ---- on the host, which must get them from a device with memory of its own ---- */

/* x[n_tok][n][n_embd] and by[n_tok][n_embd], which may be NULL, go through `fn`. */
static int on_host(struct cb_session *s, void (*fn)(void *, int, int), const struct altup *y,
                   float *x, float *by, int n_tok)
{
    const struct hparams *hp = &s->model->hp;
    const size_t row = (size_t)n_tok * (size_t)hp->n_embd * sizeof *x;
    const int far = s->dev->ops->memory != NULL;
    struct stream_work *w = &s->w.streams;
    struct alternation a = { hp, y, w->weight, far ? w->host[1] : x, far ? w->host[2] : by };

    if (far) {
        cb_device_copy(s->dev, a.x, x, row * (size_t)hp->n_stream);
        if (by)
            cb_device_copy(s->dev, a.by, by, row);
    }
    TRY(cb_device_wait(s->dev)); /* the products, too */
    cb_par_for(s->dev->par, n_tok, fn, &a);
    if (far) {
        cb_device_copy(s->dev, x, a.x, row * (size_t)hp->n_stream);
        if (by)
            cb_device_copy(s->dev, by, a.by, row);
        TRY(cb_device_wait(s->dev)); /* the next call writes there */
    }
    return CB_OK;
}

/* Products of x's normed rows, `stride` apart, with the router -> w.streams.weight */
static void route(struct cb_session *s, const struct altup *y, const float *x, int stride,
                  int n_tok, int bits)
{
    const struct mm mm = { &y->router, NULL, s->w.streams.weight, y->router.n_out, 0, bits };
    const int ne = s->model->hp.n_embd;

    cb_norm_rows(s, &y->router_norm, x, 1, n_tok, stride, s->w.norm, ne);
    cb_product(s, &mm, 1, s->w.norm, n_tok);
}

void cb_alternating_begin(struct cb_session *s, const float *embd, int n_tok, int bits, float *x)
{
    const struct altup *y = s->model->layer[0].altup;
    const int n = s->model->hp.n_stream, ne = s->model->hp.n_embd, wide = n * ne;
    const size_t row = (size_t)ne * sizeof *x;
    float *all = s->w.streams.normed;
    struct mm mm[MOST_STREAMS];

    cb_device_copy_rows(s->dev, all, (size_t)n * row, embd, row, row, n_tok);
    for (int i = 0; i < n - 1; i++)
        mm[i] = (struct mm){ &y->spread[i], NULL, all + (i + 1) * ne, wide, 0, bits };
    cb_product(s, mm, n - 1, embd, n_tok);
    (void)on_host(s, level_row, NULL, all, NULL, n_tok); /* a device that fails says so again */
    cb_device_copy(s->dev, x, all, (size_t)n_tok * (size_t)n * row);
}

int cb_alternating_predict(struct cb_session *s, const struct altup *y, float *x, int n_tok,
                           int bits)
{
    const struct hparams *hp = &s->model->hp;

    route(s, y, x + hp->active * hp->n_embd, hp->n_stream * hp->n_embd, n_tok, bits);
    return on_host(s, predict_row, y, x, s->w.streams.plane, n_tok);
}

void cb_alternating_beside(struct cb_session *s, const struct altup *y, const float *in, int n_tok,
                           int bits)
{
    const int ne = s->model->hp.n_embd, rank = y->low.n_out;
    struct stream_work *w = &s->w.streams;
    const struct mm low = { &y->low, NULL, w->low, rank, 0, bits };
    const struct mm high = { &y->high, NULL, w->gate, ne, 0, bits };

    cb_product(s, &low, 1, in, n_tok);
    cb_product(s, &high, 1, w->low, n_tok);
    cb_norm_rows(s, &y->laurel_norm, w->gate, 1, n_tok, ne, w->gate, ne);
    s->dev->ops->add(s->dev, w->gate, in, 1, (size_t)n_tok * (size_t)ne);
}

void cb_alternating_join(struct cb_session *s, int n_tok)
{
    const size_t all = (size_t)n_tok * (size_t)s->model->hp.n_embd;
    struct stream_work *w = &s->w.streams;

    s->dev->ops->add(s->dev, w->plane, w->gate, 1, all);
    s->dev->ops->scale(s->dev, w->plane, sqrtf(0.5f), 0, all);
}

int cb_alternating_correct(struct cb_session *s, const struct altup *y, float *x, int n_tok,
                           int bits)
{
    route(s, y, s->w.streams.plane, s->model->hp.n_embd, n_tok, bits);
    return on_host(s, correct_row, y, x, s->w.streams.plane, n_tok);
}

int cb_alternating_tell(struct cb_session *s, float *x, int n_tok)
{
    return on_host(s, tell_row, NULL, x, s->w.add, n_tok);
}

int cb_alternating_end(struct cb_session *s, const float *x, int n_tok, int bits, float *out)
{
    const struct hparams *hp = &s->model->hp;
    const struct altup *y = s->model->layer[hp->n_layer - 1].altup;
    const int n = hp->n_stream, ne = hp->n_embd, wide = n * ne;
    const size_t row = (size_t)ne * sizeof *x;
    struct stream_work *w = &s->w.streams;

    cb_device_copy_rows(s->dev, w->normed, (size_t)n * row, x, (size_t)n * row, row, n_tok);
    for (int i = 1; i < n; i++) {
        const struct mm mm = { &y->merge[i - 1], NULL, w->normed + i * ne, wide, 0, bits };
        cb_device_copy_rows(s->dev, w->plane, row, x + i * ne, (size_t)n * row, row, n_tok);
        cb_product(s, &mm, 1, w->plane, n_tok);
    }
    return on_host(s, average_row, NULL, w->normed, out, n_tok);
}
