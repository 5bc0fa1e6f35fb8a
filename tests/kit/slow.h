/* SPDX-License-Identifier: MIT */
/* slow.h - the reference for sessions with a policy: a simple forward pass in doubles. Every
 * token's key and value stay; tokens that the policy dropped are masked. */
#ifndef SLOW_H
#define SLOW_H

#include "model/model.h"

struct slow {
    const struct cb_model *m;
    struct hparams hp;
    struct rope rope;
    int cap, n;    /* most tokens; tokens so far */
    int feed;      /* first token of the current feed */
    int rolling;   /* 1: keys and queries are rotated by their rank among the kept tokens */
    int ceiling;   /* > 0: kept tokens this far or further are seen at this distance */
    int window;    /* > 0: a query sees only the kept tokens closer than this */
    double *raw;   /* [n_layer][n_kv][cap][hd] keys before rotation */
    double *k, *v; /* the same, rotated at their own positions; merging changes them */
    double *q;     /* [n_layer][n_head][cap][hd] queries before rotation */
    char *left;    /* [n_layer][n_kv][cap] 1 = not dropped */
    char *gone;    /* [cap] 1 = a token of the current feed that later layers do not compute */
    /* after layer l of a feed; may set `gone`, not for the last token. NULL: all are computed */
    void (*pass)(struct slow *s, int l);
    double *p;      /* [n_layer][n_head][cap][cap] attention of query i to token j */
    double *logits; /* [n_vocab] after the last token */
};

struct slow *cb_slow_new(const struct cb_model *m, int cap);
void cb_slow_free(struct slow *s);
void cb_slow_feed(struct slow *s, const int32_t *tokens, int n);

/* x[hd] of one head, rotated to a position -> y */
void cb_slow_rotate(const struct slow *s, const double *x, int pos, double *y);

/* Index of query i of head h */
static inline size_t cb_slow_query(const struct slow *s, int l, int h, int i)
{
    return ((size_t)l * (size_t)s->hp.n_head + (size_t)h) * (size_t)s->cap + (size_t)i;
}

static inline size_t cb_slow_at(const struct slow *s, int l, int kv, int j)
{
    return ((size_t)l * (size_t)s->hp.n_kv + (size_t)kv) * (size_t)s->cap + (size_t)j;
}

static inline double cb_slow_p(const struct slow *s, int l, int h, int i, int j)
{
    const size_t row = ((size_t)l * (size_t)s->hp.n_head + (size_t)h) * (size_t)s->cap + (size_t)i;
    return s->p[row * (size_t)s->cap + (size_t)j];
}

#endif
