/* SPDX-License-Identifier: MIT */
/* skew.c - the skew of InfiniGen (Lee et al., 2024, section 4.2), from the queries and keys of the
 * first feed. Its columns are the eigenvectors of the products of a KV head's queries with
 * themselves, those of all its query heads. They are in the order of what queries have along them
 * times what keys have. */
#include "skew.h"

#include <math.h>
#include <string.h>

#include "attention/gram.h"
#include "attention/state_memory.h"
#include "base/eigen.h"
#include "base/err.h"

struct skew {
    double *gram;  /* [n_head + n_kv][hd][hd] of each head's queries, then of keys */
    double *v;     /* [n_kv][hd][hd] eigenvectors */
    double *value; /* [n_kv][2][hd] eigenvalues, weights of columns */
};

static size_t square(const struct attention *a)
{
    return (size_t)a->bank->hd * (size_t)a->bank->hd;
}

static size_t heads(const struct attention *a) /* of queries and of keys */
{
    return (size_t)(a->model->hp.n_head + a->bank->n_kv);
}

int cb_skew_open(const struct attention *a, void *state, struct skew **out)
{
    const size_t n_kv = (size_t)a->bank->n_kv;
    struct skew *x = *out = cb_state_calloc(state, 1, sizeof *x);

    if (!x)
        return CB_ENOMEM;
    x->gram = cb_state_alloc(state, heads(a) * square(a), sizeof *x->gram);
    x->v = cb_state_alloc(state, n_kv * square(a), sizeof *x->v);
    x->value = cb_state_alloc(state, n_kv * 2 * (size_t)a->bank->hd, sizeof *x->value);
    return cb_state_status(state);
}

/* Does layer l still need one? */
static int lacks(const struct attention *a, int l)
{
    return !a->bank->store[l].skewed_at;
}

/* ---- queries and keys ---- */

struct gathering {
    const struct attention *a;
    struct skew *x;
    const struct chunk *c;
};

static void gather_head(void *ctx, int h, int thread)
{
    const struct gathering *g = ctx;
    const int n_head = g->a->model->hp.n_head, hd = g->a->bank->hd;
    const float *x = h < n_head ? g->c->q + h * hd : g->c->k + (h - n_head) * hd;

    (void)thread;
    cb_gram_add(x, (size_t)g->c->stride, g->c->n, hd, NULL, g->x->gram + (size_t)h * square(g->a));
}

void cb_skew_chunk(const struct attention *a, struct skew *x, const struct chunk *c)
{
    struct gathering g = { a, x, c };

    if (!lacks(a, c->l))
        return;
    if (c->pos0 == a->bank->n_seen) /* the feed's first tokens */
        memset(x->gram, 0, heads(a) * square(a) * sizeof *x->gram);
    cb_par_for(a->dev->par, (int)heads(a), gather_head, &g);
}

/* ---- the matrix ---- */

/* The lower triangle of x[n][n] becomes the upper one too. */
static void mirror(double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            x[j * n + i] = x[i * n + j];
}

/* v x v for a symmetric x[n][n] */
static double along(const double *x, size_t n, const double *v)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        double y = 0;
        for (size_t j = 0; j < n; j++)
            y += x[i * n + j] * v[j];
        sum += y * v[i];
    }
    return sum;
}

/* The index of the largest of w[n] that is not taken (-1), which it takes */
static size_t take_largest(double *w, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        if (w[i] > w[best])
            best = i;
    w[best] = -1;
    return best;
}

struct making {
    const struct attention *a;
    struct skew *x;
    int l;
};

static void make_head(void *ctx, int kv, int thread)
{
    const struct making *m = ctx;
    const struct attention *a = m->a;
    const size_t hd = (size_t)a->bank->hd, of = square(a);
    const int group = cb_attention_group(a), columns = a->plan[m->l].sketch.columns;
    double *q = m->x->gram + (size_t)(kv * group) * of, *v = m->x->v + (size_t)kv * of;
    double *k = m->x->gram + (size_t)(a->model->hp.n_head + kv) * of;
    double *value = m->x->value + 2 * (size_t)kv * hd, *weight = value + hd;

    (void)thread;
    for (int g = 1; g < group; g++)
        for (size_t i = 0; i < of; i++)
            q[i] += q[(size_t)g * of + i];
    mirror(q, hd);
    mirror(k, hd);
    cb_eigen(q, (int)hd, v, value);
    for (size_t c = 0; c < hd; c++)
        weight[c] = fmax(value[c], 0) * fmax(along(k, hd, v + c * hd), 0);
    for (int c = 0; c < columns; c++)
        cb_store_set_skew(&a->bank->store[m->l], kv, c, v + take_largest(weight, hd) * hd);
}

void cb_skew_make(const struct attention *a, struct skew *x, int l)
{
    struct making m = { a, x, l };

    if (!lacks(a, l))
        return;
    cb_par_for(a->dev->par, a->bank->n_kv, make_head, &m);
    a->bank->store[l].skewed_at = a->bank->n_seen + a->bank->n_feed;
}
