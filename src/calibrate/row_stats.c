/* SPDX-License-Identifier: MIT */
/* row_stats.c - statistics of a layer's attention rows. */
#include "row_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* ---- ends ---- */

int cb_ends_open(struct ends *e, int n_layer, int sink, int recent)
{
    *e = (struct ends){ .n_layer = n_layer, .sink = sink, .recent = recent };
    e->sum = cb_calloc((size_t)n_layer, sizeof *e->sum);
    return e->sum ? CB_OK : CB_ENOMEM;
}

/* What the first `sink` and the last `recent` entries hold, mean over heads */
static double at_ends(const struct scores *s, int sink, int recent)
{
    double sum = 0;

    for (int h = 0; h < s->n_row; h++)
        for (int j = 0; j < s->n; j++)
            if (j < sink || j >= s->n - recent)
                sum += (double)s->s[(size_t)h * (size_t)s->stride + (size_t)j] / s->n_row;
    return sum;
}

void cb_ends_look(void *ends, int l, int n_cand, const struct scores *s)
{
    struct ends *e = ends;
    double score;

    (void)n_cand;
    if (s->prompt)
        return;
    score = at_ends(s, e->sink, e->recent);
    e->sum[l] += score;
    e->n_step += l == 0;
    for (int i = 0; i <= 100; i++)
        e->n_over[i] += score > i / 100.0;
}

int cb_ends_map_open(struct ends_map *m, int n_layer, int n_step, int sink, int recent)
{
    *m =
        (struct ends_map){ .n_layer = n_layer, .cap_step = n_step, .sink = sink, .recent = recent };
    m->share = cb_calloc((size_t)n_layer * (size_t)n_step, sizeof *m->share);
    return m->share ? CB_OK : CB_ENOMEM;
}

void cb_ends_map_look(void *map, int l, int n_cand, const struct scores *s)
{
    struct ends_map *m = map;

    (void)n_cand;
    if (s->prompt)
        return;
    m->n_step += l == 0;
    m->share[(size_t)l * (size_t)m->cap_step + (size_t)m->n_step - 1] =
        at_ends(s, m->sink, m->recent);
}

/* ---- reach ---- */

int cb_reach_open(struct reach *r, int n_layer, int n_kv, int sink, int recent)
{
    *r = (struct reach){ .n_layer = n_layer, .n_kv = n_kv, .sink = sink, .recent = recent };
    r->sum = cb_calloc((size_t)(n_layer * n_kv), sizeof *r->sum);
    return r->sum ? CB_OK : CB_ENOMEM;
}

void cb_reach_look(void *reach, int l, int n_cand, const struct scores *s)
{
    struct reach *r = reach;
    const int group = s->n_row / r->n_kv;

    (void)n_cand;
    if (s->prompt)
        return;
    for (int kv = 0; kv < r->n_kv; kv++) {
        double most = 0;
        for (int h = kv * group; h < (kv + 1) * group; h++) {
            const float *row = s->s + (size_t)h * (size_t)s->stride;
            double sum = 0;
            for (int j = r->sink; j < s->n - r->recent; j++)
                sum += (double)row[j];
            most = sum > most ? sum : most;
        }
        r->sum[l * r->n_kv + kv] += most;
    }
    r->n_step += l == 0;
}

/* ---- shapes ---- */

int cb_shapes_open(struct shapes *x, int n_layer, int n_ctx)
{
    *x = (struct shapes){ .n_layer = n_layer };
    x->entropy = cb_calloc((size_t)n_layer, sizeof *x->entropy);
    x->gini = cb_calloc((size_t)n_layer, sizeof *x->gini);
    x->row = cb_calloc((size_t)n_ctx, sizeof *x->row);
    x->tmp = cb_calloc((size_t)n_ctx, sizeof *x->tmp);
    return x->entropy && x->gini && x->row && x->tmp ? CB_OK : CB_ENOMEM;
}

void cb_shapes_close(struct shapes *x)
{
    free(x->entropy);
    free(x->gini);
    free(x->row);
    free(x->tmp);
}

void cb_shapes_look(void *shapes, int l, int n_cand, const struct scores *s)
{
    struct shapes *x = shapes;

    (void)n_cand;
    if (s->prompt)
        return;
    memset(x->row, 0, (size_t)s->n * sizeof *x->row);
    for (int h = 0; h < s->n_row; h++)
        for (int j = 0; j < s->n; j++)
            x->row[j] += s->s[(size_t)h * (size_t)s->stride + (size_t)j] / (float)s->n_row;
    x->entropy[l] += cb_row_entropy(x->row, s->n);
    x->gini[l] += cb_row_gini(x->row, s->n, x->tmp);
    x->n_step += l == 0;
}

/* ---- density ---- */

int cb_density_open(struct density *d, int n_layer)
{
    *d = (struct density){ .n_layer = n_layer };
    d->variance = cb_calloc((size_t)n_layer, sizeof *d->variance);
    d->spread = cb_calloc((size_t)n_layer, sizeof *d->spread);
    return d->variance && d->spread ? CB_OK : CB_ENOMEM;
}

void cb_density_close(struct density *d)
{
    free(d->variance);
    free(d->spread);
}

void cb_density_look(void *density, int l, int n_cand, const struct scores *s)
{
    struct density *d = density;

    (void)n_cand;
    if (!s->prompt)
        return;
    d->spread[l] += cb_scores_spread(s);
    d->variance[l] += cb_scores_variance(s, 0, s->n_row);
    d->n_prompt += l == 0;
    d->n_tok += l == 0 ? s->n : 0;
}
