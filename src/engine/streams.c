/* SPDX-License-Identifier: MIT */
/* streams.c - several residual streams: what a block reads of them, and where its result goes. */
#include "streams.h"

#include <math.h>

#include "base/err.h"
#include "base/ints.h"
#include "device/recurrence.h"
#include "norm_rows.h"
#include "product.h"

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* The normed streams -> gates of all their numbers, w->gate[n][n_tok][n_embd] before the sigmoid */
static void gates(struct cb_session *s, const struct stream_mix *mix, int n_tok, int bits)
{
    const size_t plane = (size_t)n_tok * (size_t)s->model->hp.n_embd;
    struct stream_work *w = &s->w.streams;
    const int rank = mix->down.n_out;
    const struct mm down = { &mix->down, NULL, w->low, rank, 0, bits };
    struct mm up[MOST_STREAMS];

    cb_product(s, &down, 1, w->normed, n_tok);
    s->dev->ops->scale(s->dev, w->low, 1 / (float)mix->n, 0, (size_t)n_tok * (size_t)rank);
    s->dev->ops->glu(s->dev, ACT_SILU, w->low, NULL, rank, n_tok);
    for (int i = 0; i < mix->n; i++)
        up[i] = (struct mm){ &mix->up[i],         NULL, w->gate + (size_t)i * plane,
                             s->model->hp.n_embd, 0,    bits };
    cb_product(s, up, mix->n, w->low, n_tok);
}

/* How much of the block's result each stream gets -> w->weight[n_tok][n] */
static int inject(struct cb_session *s, const struct stream_mix *mix, int n_tok, int bits)
{
    struct stream_work *w = &s->w.streams;
    const struct mm mm = { &mix->inject, NULL, w->weight, mix->n, 0, bits };

    cb_product(s, &mm, 1, w->normed, n_tok);
    TRY(cb_device_wait(s->dev)); /* the host turns them into weights */
    for (int i = 0; i < n_tok * mix->n; i++)
        w->weight[i] = (float)(2 * sigmoid((double)w->weight[i] / mix->n));
    return CB_OK;
}

int cb_streams_read(struct cb_session *s, const struct stream_mix *mix, const float *x, int n_tok,
                    int bits, float *out)
{
    const int ne = s->model->hp.n_embd, n = mix->n, wide = n * ne;
    const size_t plane = (size_t)n_tok * (size_t)ne, row = (size_t)ne * sizeof *x;
    const struct ops *op = s->dev->ops;
    struct stream_work *w = &s->w.streams;

    cb_norm_rows(s, &mix->norm, x, n, n_tok, wide, w->normed, wide);
    if (mix->inject.raw)
        TRY(inject(s, mix, n_tok, bits));
    gates(s, mix, n_tok, bits);
    for (int i = 0; i < n; i++)
        cb_device_copy_rows(s->dev, w->plane + (size_t)i * plane, row, w->normed + i * ne,
                            (size_t)n * row, row, n_tok);
    op->glu(s->dev, ACT_SIGMOID, w->gate, w->plane, ne, n * n_tok);
    for (int i = 1; i < n; i++)
        op->add(s->dev, w->gate, w->gate + (size_t)i * plane, 1, plane);
    op->scale(s->dev, w->gate, 1 / (float)n, 0, plane);
    cb_device_copy(s->dev, out, w->gate, plane * sizeof *out);
    return CB_OK;
}

void cb_streams_add(struct cb_session *s, float *x, const float *by, int n_tok)
{
    const int n = s->model->hp.n_stream;
    const size_t ne = (size_t)s->model->hp.n_embd;
    const float scale = s->model->hp.resid_scale;

    for (int t = 0; t < n_tok; t++)
        for (int i = 0; i < n; i++)
            s->dev->ops->add(s->dev, x + ((size_t)t * (size_t)n + (size_t)i) * ne,
                             by + (size_t)t * ne, scale * s->w.streams.weight[t * n + i], ne);
}

/* ---- n-grams ---- */

/* The token at position p of row i's session. What a repetition of the prompt feeds is not in the
 * timeline. */
static int32_t token_at(const struct rows *r, int i, int p, int32_t eos)
{
    const struct cb_session *s = cb_rows_session(r, i);

    if (p < 0)
        return eos;
    return s->attention.repeated.to && p >= s->bank.n_seen ? s->w.id[p - s->bank.n_seen]
                                                           : s->token[p];
}

/* The rows of the table that belong to each token -> w->row */
static void find_rows(const struct rows *r, const struct ngrams *x)
{
    struct stream_work *w = &r->s[0]->w.streams;

    for (int i = 0; i < r->n_tok; i++) {
        const int p = cb_rows_pos(r, i);
        int32_t last[NGRAM_MOST];
        int ended = 0;
        last[0] = token_at(r, i, p, x->eos);
        for (int j = 1; j < x->n_most; j++) {
            last[j] = ended ? x->eos : token_at(r, i, p - j, x->eos);
            ended |= last[j] == x->eos;
        }
        cb_ngrams_rows(x, last, w->row + (size_t)i * (size_t)x->n_head);
    }
}

/* How well the key of each stream fits it, and the value by that: key[n][ne] -> the streams' */
static void weigh(int n, int ne, float *key, const float *stream, const float *value)
{
    for (int i = 0; i < n; i++) {
        double sum = 0, by;
        for (int j = 0; j < ne; j++)
            sum += (double)key[i * ne + j] * (double)stream[i * ne + j];
        sum /= sqrt((double)ne);
        by = sigmoid(sum != 0 ? copysign(sqrt(fmax(fabs(sum), 1e-6)), sum) : 0);
        for (int j = 0; j < ne; j++)
            key[i * ne + j] = (float)(by * (double)value[j]);
    }
}

/* A convolution over tokens n_most apart: as many convolutions over adjacent tokens, each of which
 * takes every n_most-th. `rows` is convolved in place. */
static void convolve(const struct rows *r, int l, const struct ngrams *x, float *rows, int wide)
{
    const int apart = x->n_most, tokens = r->n > 1 ? 1 : r->n_tok;
    const size_t past = (size_t)(x->n_tap - 1) * (size_t)wide;
    struct short_conv call[NGRAM_MOST];

    for (int i = 0; i < r->n; i++) {
        struct cb_session *s = r->s[i];
        const int pos = r->n > 1 ? s->bank.n_seen : r->pos0;
        float *own = cb_states_past(&s->bank.states, l);
        const int n = tokens < apart ? tokens : apart;
        for (int j = 0; j < n; j++) {
            float *at = rows + (size_t)(i + j) * (size_t)wide;
            float *state = own + (size_t)((pos + j) % apart) * past;
            call[j] = (struct short_conv){ .n_tok = (tokens - j + apart - 1) / apart,
                                           .n = wide,
                                           .n_tap = x->n_tap,
                                           .silu = 1,
                                           .w = x->tap,
                                           .x = at,
                                           .from = state,
                                           .to = state,
                                           .y = at,
                                           .x_stride = apart * wide,
                                           .y_stride = apart * wide };
        }
        r->s[0]->dev->ops->short_conv(r->s[0]->dev, call, n);
    }
}

int cb_streams_ngrams(const struct rows *r, int l, int bits)
{
    struct cb_session *s = r->s[0];
    const struct ngrams *x = s->model->layer[l].ngrams;
    const int n = s->model->hp.n_stream, ne = s->model->hp.n_embd, wide = n * ne, m = r->n_tok;
    const size_t all = (size_t)m * (size_t)wide, bytes = all * sizeof(float);
    struct stream_work *w = &s->w.streams;
    const struct mm mm[] = { { &x->key, NULL, w->gate, wide, 0, bits },
                             { &x->value, NULL, w->plane, ne, 0, bits } };

    find_rows(r, x);
    s->dev->ops->get_rows(s->dev, &x->table, w->row, m * x->n_head, w->embedding);
    cb_product(s, mm, 2, w->embedding, m);
    cb_norm_rows(s, &x->key_norm, w->gate, n, m, wide, w->gate, wide);
    cb_norm_rows(s, &x->query_norm, r->x, n, m, wide, w->normed, wide);
    cb_device_copy(s->dev, w->host[0], w->gate, bytes);
    cb_device_copy(s->dev, w->host[1], w->normed, bytes);
    cb_device_copy(s->dev, w->host[2], w->plane, (size_t)m * (size_t)ne * sizeof(float));
    TRY(cb_device_wait(s->dev));
    for (int t = 0; t < m; t++)
        weigh(n, ne, w->host[0] + (size_t)t * (size_t)wide, w->host[1] + (size_t)t * (size_t)wide,
              w->host[2] + (size_t)t * (size_t)ne);
    cb_device_copy(s->dev, w->gate, w->host[0], bytes);
    cb_norm_rows(s, &x->conv_norm, w->gate, n, m, wide, w->normed, wide);
    convolve(r, l, x, w->normed, wide);
    s->dev->ops->add(s->dev, r->x, w->gate, 1, all);
    s->dev->ops->add(s->dev, r->x, w->normed, 1, all);
    return CB_OK;
}
