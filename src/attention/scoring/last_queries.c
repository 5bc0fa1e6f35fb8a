/* SPDX-License-Identifier: MIT */
/* last_queries.c - a slot's score is the sum of the weights that the last queries of a prompt, a
 * window of them, give it. They are kept until the prompt has gone through the layer. */
#include <string.h>

#include "attention/context_split.h"
#include "attention/prefill.h"
#include "attention/reader.h"
#include "attention/scoring.h"
#include "attention/state_memory.h"
#include "base/err.h"
#include "base/ints.h"
#include "scores.h"

struct last_queries {
    int window; /* the longest one in the plan */
    float *q;   /* [window][n_head * hd], where ops write */
    float *lse; /* [window][n_head] */
    int n;      /* queries that are kept */
    float *out; /* [window][n_head * hd] where a form of prefill chooses, else NULL */
};

static int claims(const struct layer_plan *row)
{
    return row->score.when != WHEN_NEVER && row->score.window;
}

static int open(struct attention *a, void *x)
{
    struct last_queries *s = x;
    size_t window;

    for (int l = 0; l < a->bank->n_layer; l++)
        s->window = max_int(s->window, a->plan[l].score.window);
    window = (size_t)s->window;
    s->q = cb_state_device(s, a->dev, window * cb_attention_row(a), sizeof *s->q);
    s->lse = cb_state_alloc(s, window * (size_t)a->model->hp.n_head, sizeof *s->lse);
    if (cb_prefill_is(a))
        s->out = cb_state_alloc(s, window * cb_attention_row(a), sizeof *s->out);
    return CB_OK;
}

/* Tokens of c before the window. On several ranks c has tokens from anywhere in the prompt. */
static int before_window(const struct attention *a, const struct chunk *c)
{
    const int window = a->plan[c->l].score.window;
    const int first =
        (cb_context_split_works(a) ? a->bank->n_seen + a->bank->n_feed : c->pos_end) - window;
    int i = 0;

    if (!cb_context_split_works(a))
        return max_int(first - c->pos0, 0);
    while (i < c->n && c->pos[i] < first)
        i++;
    return i;
}

static int share(struct attention *a, int l)
{
    struct last_queries *s = cb_scoring_state(a, l);
    const int n = min_int(a->plan[l].score.window, a->bank->n_feed);

    TRY(cb_context_split_last_rows(a, s->q, cb_attention_row(a), n));
    TRY(cb_context_split_last_rows(a, s->lse, (size_t)a->model->hp.n_head, n));
    s->n = n;
    return CB_OK;
}

/* Keeps the last queries of the prompt, across chunks. */
static int chunk(struct attention *a, const struct chunk *c, const struct attention *read,
                 const float *lse, int begins)
{
    struct last_queries *s = cb_scoring_state(a, c->l);
    const size_t row = cb_attention_row(a), nh = (size_t)a->model->hp.n_head;
    const int i = before_window(a, c);

    (void)read;
    s->n = begins ? 0 : s->n;
    if (i >= c->n)
        return CB_OK;
    cb_device_copy_rows(a->dev, s->q + (size_t)s->n * row, row * sizeof(float),
                        c->q + (size_t)i * (size_t)c->stride, (size_t)c->stride * sizeof(float),
                        row * sizeof(float), c->n - i);
    memcpy(s->lse + (size_t)s->n * nh, lse + (size_t)i * nh,
           (size_t)(c->n - i) * nh * sizeof(float));
    s->n += c->n - i;
    return CB_OK;
}

/* score holds the weights within each query's band. The first `sink` entries are replaced by their
 * full weights, so that nothing counts twice where band and sinks overlap. */
static void add_sinks(struct attention *a, int l, struct attn at)
{
    struct score_space *m = a->scores_at;
    const int n = cb_store_max_len(&a->bank->store[l]), sink = a->plan[l].score.sink;
    const size_t n_sink = (size_t)(sink < n ? sink : n);

    at.window = cb_attention_window(a, l);
    cb_scores_clear(m->rows, at.n_head, a->bank->n_ctx, n);
    cb_scores_add(a, &at, m->rows);
    for (int h = 0; h < at.n_head; h++)
        memcpy(m->score + (size_t)h * (size_t)a->bank->n_ctx,
               m->rows + (size_t)h * (size_t)a->bank->n_ctx, n_sink * sizeof(float));
}

/* The log-sum-exp over the whole store, for queries that have read only a part of it: scores are
 * over all tokens, so it must be too. */
static void whole_lse(struct attention *a, const struct attn *at, float *out)
{
    struct attn all = *at;

    all.out = out;
    a->dev->ops->attention(a->dev, &all, 1);
}

static void prompt(struct attention *a, int l, struct scores *out)
{
    const struct last_queries *s = cb_scoring_state(a, l);
    const int band = a->plan[l].score.band;
    struct attn at = cb_scores_over_store(a, l);

    at.n_tok = s->n;
    at.q = s->q;
    at.lse = s->lse;
    if (cb_prefill_is(a) && a->prompt.how->partly(a, l))
        whole_lse(a, &at, s->out);
    if (band)
        at.window = band;
    cb_scores_add(a, &at, a->scores_at->score);
    if (band)
        add_sinks(a, l, at);
    if (a->layer[l]->r->mask)
        a->layer[l]->r->mask(a, l, a->scores_at->score);
    cb_scores_reduce(a, l, a->scores_at->score);
    cb_scores_hand_over(a, l, a->scores_at->rows, s->n, 1, out);
}

const struct scoring cb_scoring_last_queries = {
    .claims = claims,
    .state = sizeof(struct last_queries),
    .open = open,
    .chunk = chunk,
    .share = share,
    .prompt = prompt,
};
