/* SPDX-License-Identifier: MIT */
/* last_share.c - a slot's score is the sum of the weights that the last queries of a prompt give
 * it, a share of them all. Later queries count more. The layer is read as one part. */

#include "attention/parts.h"
#include "attention/scoring.h"
#include "attention/state_memory.h"
#include "base/err.h"
#include "scores.h"

static int claims(const struct layer_plan *row)
{
    return row->score.when != WHEN_NEVER && row->score.share > 0;
}

/* *x: float[chunk], the weights of queries */
static int open(struct attention *a, void **x)
{
    *x = cb_state_new((size_t)a->chunk * sizeof(float));
    return *x ? CB_OK : CB_ENOMEM;
}

static int chunk(struct attention *a, const struct chunk *c, const struct attention *read,
                 const float *lse, int begins)
{
    const struct score_plan *w = &a->plan[c->l].score;
    const int n = 1 + (int)(w->share * a->bank->n_feed), first = c->pos_end - n;
    const int from = first > c->pos0 ? first - c->pos0 : 0;
    const double more = n > 1 ? ((double)w->last - 1) / (n - 1) : 0;
    float *weight = cb_scoring_state(a, c->l);
    struct score sc = { .a = cb_parts_attn_of(a, c->l, 0),
                        .weight = weight,
                        .out = a->scores_at->score,
                        .out_stride = a->bank->n_ctx };

    (void)read, (void)begins;
    if (from >= c->n)
        return CB_OK;
    for (int i = from; i < c->n; i++)
        weight[i - from] = (float)(1 + more * (c->pos0 + i - first));
    sc.a.n_tok = c->n - from;
    sc.a.q += (size_t)from * (size_t)sc.a.q_stride;
    sc.a.lse = (float *)(uintptr_t)(lse + (size_t)from * (size_t)sc.a.n_head); /* only read */
    a->dev->ops->score(a->dev, &sc);
    return CB_OK;
}

const struct scoring cb_scoring_last_share = {
    .shared = 1,
    .claims = claims,
    .open = open,
    .chunk = chunk,
    .prompt = cb_scores_summed,
};
