/* SPDX-License-Identifier: MIT */
/* attention.h - what attention works on: one session's model, bank and policy, and the state of
 * each part of this room. Every other file here takes it; only attend.c is called from outside. */
#ifndef ATTENTION_H
#define ATTENTION_H

#include "bank/bank.h"
#include "model/model.h"
#include "policy/policy.h"

struct attention {
    const struct cb_model *model;
    struct device *dev;
    struct bank *bank;
    struct policy *policy;
    const struct layer_plan *plan; /* [n_layer] the policy's */
    int chunk;                     /* tokens that go through a layer at once, at most */

    struct parts *parts;             /* parts.c */
    struct rolling *rolling;         /* rolling.c; NULL where positions stay */
    struct cross_layer *cross_layer; /* cross_layer.c; NULL where no layer reads another's logits */
    struct sparse_prefill *sparse;   /* sparse_prefill.c */
    struct chooser *chooser;         /* chooser.c; NULL where no layer chooses for others */
    struct scoring *scoring;         /* scores.c; NULL where the plan wants no scores */
    struct eviction *eviction;       /* NULL where the policy drops nothing */
    struct scores scores;            /* of the layer that was attended to last */
    int has_scores;

    /* Sessions that take over the keys, values and queries of the prompt at hand, and the session
     * that computes it (engine/shared_prefill.c). */
    struct attention *const *follower; /* [n_follower] */
    int n_follower;
    const struct attention *leader; /* NULL: it computes for itself */
};

/* Tokens on their way through one layer: queries [n][n_head][hd], keys and values [n][n_kv][hd],
 * each token's at a stride in floats, rotated. */
struct chunk {
    int l;
    const float *q, *k, *v;
    int stride, n;
    int pos0;    /* position of the first token */
    int pos_end; /* the feed that they are part of ends before this position */
};

/* The last tokens that a query of layer l sees: the model's window or the plan's; 0 = all. */
static inline int cb_attention_window(const struct attention *a, int l)
{
    const int own = a->model->hp.window, asked = a->plan[l].window;
    return own && asked ? (own < asked ? own : asked) : own + asked;
}

static inline int cb_attention_group(const struct attention *a)
{
    return a->model->hp.n_head / a->model->hp.n_kv;
}

/* Floats of one token's queries, or of its output */
static inline size_t cb_attention_row(const struct attention *a)
{
    return (size_t)a->model->hp.n_head * (size_t)a->model->hp.hd;
}

#endif
