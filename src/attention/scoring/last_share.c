/* SPDX-License-Identifier: MIT */
/* last_share.c - a slot's score is the sum of the weights that the last queries of a prompt give
 * it, a share of them all. Later queries count more. The layer is read as one part. */

#include "attention/parts.h"
#include "attention/scoring.h"
#include "attention/state_memory.h"
#include "base/err.h"
#include "scores.h"

struct last_share {
    float *weight; /* [chunk] of queries */
};

static int claims(const struct layer_plan *row)
{
    return row->score.when != WHEN_NEVER && row->score.share > 0;
}

static int open(struct attention *a, void *state)
{
    struct last_share *x = state;

    x->weight = cb_state_alloc(x, (size_t)a->chunk, sizeof *x->weight);
    return CB_OK;
}

static int chunk(struct attention *a, const struct chunk *c, const struct attention *read,
                 const float *lse, int begins)
{
    const struct score_plan *w = &a->plan[c->l].score;
    const int n = 1 + (int)(w->share * a->bank->n_feed), first = c->pos_end - n;
    const int from = first > c->pos0 ? first - c->pos0 : 0;
    const double more = n > 1 ? ((double)w->last - 1) / (n - 1) : 0;
    const struct last_share *x = cb_scoring_state(a, c->l);
    struct score sc = { .a = cb_parts_attn_of(a, c->l, 0),
                        .weight = x->weight,
                        .out = a->scores_at->score,
                        .out_stride = a->bank->n_ctx };

    (void)read, (void)begins;
    if (from >= c->n)
        return CB_OK;
    for (int i = from; i < c->n; i++)
        x->weight[i - from] = (float)(1 + more * (c->pos0 + i - first));
    sc.a.n_tok = c->n - from;
    sc.a.q += (size_t)from * (size_t)sc.a.q_stride;
    sc.a.lse = (float *)(uintptr_t)(lse + (size_t)from * (size_t)sc.a.n_head); /* only read */
    a->dev->ops->score(a->dev, &sc);
    return CB_OK;
}

const struct scoring cb_scoring_last_share = {
    .shared = 1,
    .claims = claims,
    .state = sizeof(struct last_share),
    .open = open,
    .chunk = chunk,
    .prompt = cb_scores_summed,
};
