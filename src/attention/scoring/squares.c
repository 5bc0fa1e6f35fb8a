/* SPDX-License-Identifier: MIT */
/* squares.c - a slot's score is the sum of the weights that all queries of a prompt give it, and
 * beside it stands the sum of their squares, after the mean over a KV head's query heads. The layer
 * is read as one part. */

#include "attention/parts.h"
#include "attention/scoring.h"
#include "attention/state_memory.h"
#include "base/err.h"
#include "scores.h"

struct squares {
    float *sums;   /* [2][n_kv][n_ctx] of scores, of their squares */
    float *weight; /* [chunk] of queries */
    int n_q;       /* queries in the sums */
};

static int claims(const struct layer_plan *row)
{
    return row->score.when != WHEN_NEVER && row->score.squares;
}

static size_t row_floats(const struct attention *a)
{
    return (size_t)a->bank->n_kv * (size_t)a->bank->n_ctx;
}

static int open(struct attention *a, void *x)
{
    struct squares *s = x;

    s->sums = cb_state_slots(s, 2 * (size_t)a->bank->n_kv, a->bank->n_ctx, sizeof *s->sums);
    s->weight = cb_state_alloc(s, (size_t)a->chunk, sizeof *s->weight);
    return CB_OK;
}

static int chunk(struct attention *a, const struct chunk *c, const struct attention *read,
                 const float *lse, int first)
{
    struct squares *s = cb_scoring_state(a, c->l);
    struct score sc = { .a = cb_parts_attn_of(a, c->l, 0),
                        .weight = s->weight,
                        .per = cb_attention_group(a),
                        .out = s->sums,
                        .out_stride = a->bank->n_ctx,
                        .squares = s->sums + row_floats(a) };

    (void)read;
    if (first) {
        s->n_q = 0;
        cb_scores_clear(s->sums, 2 * a->bank->n_kv, a->bank->n_ctx, cb_scores_most(a, c));
    }
    s->n_q += c->n;
    for (int i = 0; i < c->n; i++)
        s->weight[i] = 1.0f / (float)sc.per;
    sc.a.lse = (float *)(uintptr_t)lse; /* only read */
    a->dev->ops->score(a->dev, &sc);
    return CB_OK;
}

static void prompt(struct attention *a, int l, struct scores *out)
{
    const struct squares *s = cb_scoring_state(a, l);

    cb_scores_hand_over(a, l, s->sums, s->n_q, 1, out);
    out->squares = s->sums + row_floats(a);
}

const struct scoring cb_scoring_squares = {
    .claims = claims,
    .state = sizeof(struct squares),
    .open = open,
    .chunk = chunk,
    .prompt = prompt,
};
