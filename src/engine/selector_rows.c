/* SPDX-License-Identifier: MIT */
/* selector_rows.c - queries, keys and weights of the index heads. */
#include "selector_rows.h"

#include "product.h"

static const float layer_norm_eps = 1e-6f; /* of keys; files do not say it */

int cb_selector_scores(const struct cb_session *s, int l)
{
    const struct selector *x = s->model->layer[l].selector;

    return x && !x->back && s->policy->row[l].select.on;
}

static void norm(struct cb_session *s, const struct norm *w, float *x, int n_row, int n, int stride)
{
    const struct ops *ops = s->dev->ops;

    if (w->w && w->b)
        ops->layernorm(s->dev, x, w->w, w->b, layer_norm_eps, w->n, n_row, n, stride, x, stride);
    else if (w->w)
        ops->rmsnorm(s->dev, x, w->w, s->model->hp.norm_eps, w->n, n_row, n, stride, x, stride);
}

void cb_selector_rows(struct cb_session *s, const struct layer *y, const float *in, int n, int bits,
                      enum index_part part)
{
    const struct selector_params *p = &s->model->hp.selector;
    const struct selector *x = y->selector;
    const int stride = (int)cb_selector_row(&s->model->hp);
    float *q = s->w.index, *k = q + p->n_head * p->hd, *weight = k + p->hd;
    const int low = y->latent && y->latent->q_low.raw; /* what queries are made of */
    const struct mm of_low = { &x->q, NULL, q, stride, 0, bits };
    const struct mm of_in[] = { { &x->k, NULL, k, stride, 0, bits },
                                { &x->weigh, NULL, weight, stride, 0, bits } };

    cb_product(s, of_in, part == INDEX_ALL && x->weigh.raw ? 2 : 1, in, n);
    if (x->selects != SELECTS_MEANS) /* whose means are normed */
        norm(s, &x->k_norm, k, 1, n, stride);
    if (part != INDEX_ALL)
        return;
    cb_product(s, &of_low, 1, low ? s->w.latent : in, n);
    norm(s, &x->q_norm, q, p->n_head, n, stride);
}

void cb_selector_rows_home(struct cb_session *s, int n)
{
    const size_t row = cb_selector_row(&s->model->hp);

    if (s->w.index_host)
        cb_device_copy(s->dev, s->w.index_host, s->w.index, (size_t)n * row * sizeof *s->w.index);
}

struct index_rows cb_selector_rows_at(const struct cb_session *s, int i, int far)
{
    const struct selector_params *p = &s->model->hp.selector;
    const size_t row = cb_selector_row(&s->model->hp);
    const float *first = s->w.index_host && !far ? s->w.index_host : s->w.index;
    const float *q = first + (size_t)i * row, *k = q + p->n_head * p->hd;

    return (struct index_rows){ q, k, k + p->hd, (int)row, far };
}
