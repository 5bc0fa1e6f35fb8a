/* SPDX-License-Identifier: MIT */
/* layer_similarity.c - which layers attend alike, head by head, and the blocks of layers that
 * result. */
#include "layer_similarity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "model/model.h"
#include "par/par.h"

/* -x log2 x */
static double part(float x)
{
    return x > 0 ? -(double)x * (double)log2f(x) : 0;
}

double cb_bits(const float *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += part(x[i]);
    return sum;
}

double cb_divergence(const float *p, double hp, const float *q, double hq, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += part((p[i] + q[i]) / 2);
    return fmin(1, fmax(0, sum - (hp + hq) / 2));
}

/* ---- similarities ---- */

int cb_similarity_open(struct layer_similarity *a, const cb_model *m, int n_ctx)
{
    const struct hparams *hp = &m->hp;
    const size_t nl = (size_t)cb_model_policy_layers(m), nh = (size_t)hp->n_head;

    *a = (struct layer_similarity){ .n_layer = (int)nl,
                                    .n_head = hp->n_head,
                                    .n_kv = hp->n_kv,
                                    .n_ctx = n_ctx,
                                    .par = m->dev->par };
    a->sum = cb_calloc(nh * nl * nl, sizeof *a->sum);
    a->bits = cb_calloc(nh * nl, sizeof *a->bits);
    a->row = cb_alloc_aligned(nl * nh * (size_t)n_ctx, sizeof *a->row);
    return a->sum && a->bits && a->row ? CB_OK : CB_ENOMEM;
}

void cb_similarity_close(struct layer_similarity *a)
{
    free(a->sum);
    free(a->bits);
    free(a->row);
}

static float *row(const struct layer_similarity *a, int l, int h)
{
    return a->row + ((size_t)l * (size_t)a->n_head + (size_t)h) * (size_t)a->n_ctx;
}

static double *sum_at(const struct layer_similarity *a, int h, int i, int j)
{
    return a->sum + ((size_t)h * (size_t)a->n_layer + (size_t)i) * (size_t)a->n_layer + j;
}

/* Compares one head of all pairs of layers: the newest row of layer j with the layers before it. */
static void add_head(void *arg, int h, int thread)
{
    struct layer_similarity *a = arg;
    double *bits = a->bits + (size_t)h * (size_t)a->n_layer;

    (void)thread;
    for (int j = 0; j < a->n_layer; j++) {
        bits[j] = cb_bits(row(a, j, h), a->n);
        for (int i = 0; i < j; i++)
            *sum_at(a, h, i, j) +=
                1 - cb_divergence(row(a, i, h), bits[i], row(a, j, h), bits[j], a->n);
    }
}

void cb_similarity_look(void *alike, int l, int n_cand, const struct scores *s)
{
    struct layer_similarity *a = alike;

    (void)n_cand;
    if (s->prompt)
        return;
    for (int h = 0; h < a->n_head; h++)
        memcpy(row(a, l, h), s->s + (size_t)h * (size_t)s->stride, (size_t)s->n * sizeof *s->s);
    a->n = s->n;
    if (l + 1 < a->n_layer)
        return;
    cb_par_for(a->par, a->n_head, add_head, a);
    a->n_step++;
}

double cb_similarity_at(const struct layer_similarity *a, int head, int i, int j)
{
    if (i == j)
        return 1;
    return a->n_step ? *sum_at(a, head, i, j) / (double)a->n_step : 0;
}

/* ---- blocks ---- */

/* Are more than half of the heads in the KV head's group similar? */
static int similar(const struct layer_similarity *a, int kv, int i, int j, double theta)
{
    const int group = a->n_head / a->n_kv;
    int n = 0;

    for (int h = kv * group; h < (kv + 1) * group; h++)
        n += cb_similarity_at(a, h, i, j) >= theta;
    return 2 * n > group;
}

double cb_similarity_blocks(const struct layer_similarity *a, double theta, int *start)
{
    int shared = 0;

    for (int kv = 0; kv < a->n_kv; kv++) {
        int first = 0;
        for (int l = 0; l < a->n_layer; l++) {
            int joins = l > 0;
            for (int i = first; i < l; i++)
                joins &= similar(a, kv, i, l, theta);
            first = joins ? first : l;
            start[kv * a->n_layer + l] = first;
            shared += joins;
        }
    }
    return (double)shared / (a->n_kv * a->n_layer);
}

double cb_similarity_theta(const struct layer_similarity *a, double share, int *start)
{
    for (int i = 99; i > 1; i--)
        if (cb_similarity_blocks(a, i / 100.0, start) >= share)
            return i / 100.0;
    cb_similarity_blocks(a, 0.01, start);
    return 0.01;
}
