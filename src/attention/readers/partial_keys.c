/* SPDX-License-Identifier: MIT */
/* partial_keys.c - the choice of InfiniGen (Lee et al., 2024, section 4.3). While a layer computes
 * a token, its input is multiplied with the next layer's query matrix: a guess of the next layer's
 * queries, as the input changes little from layer to layer. Their first columns, skewed, give
 * logits with the partial keys. A query head counts the slots whose logits come within alpha of its
 * largest; every KV head reads as many slots as query heads count on average. */
#include "partial_keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/parts.h"
#include "base/err.h"
#include "base/ints.h"

enum { LANES = 8 };

struct partial_keys {
    float *guess; /* [MOST_DRAFT + 1][n_head * hd] for tokens that are decoded together */
    float *q;     /* [n_head][columns] one token's, skewed */
    float *logit; /* [n_head][n_ctx] */
    int *n_near;  /* [n_head] slots that a query head counts */
    struct kv_run *run;
};

int cb_partial_keys_open(const struct attention *a, int columns, struct partial_keys **out)
{
    const size_t nh = (size_t)a->model->hp.n_head, n_col = (size_t)columns;
    struct partial_keys *x = *out = cb_calloc(1, sizeof *x);

    if (!x)
        return CB_ENOMEM;
    x->guess = cb_alloc_aligned((MOST_DRAFT + 1) * cb_attention_row(a), sizeof *x->guess);
    x->q = cb_alloc_aligned(nh * n_col, sizeof *x->q);
    /* memory for these is committed page by page as the context grows */
    x->logit = cb_alloc_aligned(nh * (size_t)a->bank->n_ctx, sizeof *x->logit);
    x->n_near = cb_calloc(nh, sizeof *x->n_near);
    x->run = cb_calloc((size_t)a->bank->n_kv, sizeof *x->run);
    return x->guess && x->q && x->logit && x->n_near && x->run ? CB_OK : CB_ENOMEM;
}

void cb_partial_keys_close(struct partial_keys *x)
{
    if (!x)
        return;
    free(x->guess);
    free(x->q);
    free(x->logit);
    free(x->n_near);
    free(x->run);
    free(x);
}

size_t cb_partial_keys_bytes(const struct attention *a, int columns, int n_most)
{
    const size_t logits = (size_t)a->model->hp.n_head * (size_t)(columns + n_most);

    return ((size_t)a->max_draft * cb_attention_row(a) + logits) * sizeof(float);
}

void cb_partial_keys_guess(const struct attention *a, struct partial_keys *x, int i, const float *q)
{
    const size_t row = cb_attention_row(a);

    memcpy(x->guess + (size_t)i * row, q, row * sizeof *q);
}

/* ---- choosing ---- */

/* Logits of the slots lo..hi-1 by the guessed queries -> x->logit */
static void guess_logits(struct attention *a, struct partial_keys *x, int l, int lo, int hi)
{
    const struct store *st = &a->bank->store[l];
    const int group = cb_attention_group(a), n_col = a->plan[l].sketch.columns;
    const float *guess = x->guess + (size_t)a->draft_index * cb_attention_row(a);
    struct score sc = {
        .a = cb_parts_attn(a, l), .logit = 1, .out = x->logit, .out_stride = a->bank->n_ctx
    };

    for (int h = 0; h < sc.a.n_head; h++) {
        cb_store_skewed(st, h / group, guess + h * st->hd, x->q + h * n_col);
        memset(x->logit + (size_t)h * (size_t)sc.out_stride, 0,
               (size_t)(hi - lo) * sizeof *x->logit);
    }
    for (int h = 0; h < st->n_kv; h++) {
        const uint8_t *k = cb_store_sketch_at(st, h, lo);
        x->run[h] = (struct kv_run){ .k = k, .v = k, .n = hi - lo };
    }
    sc.a.n_tok = 1;
    sc.a.causal = sc.a.window = 0;
    sc.a.softcap = 0; /* it changes no order */
    sc.a.type_k = sc.a.type_v = KV_F16;
    sc.a.hd = n_col;
    sc.a.q = x->q;
    sc.a.q_stride = sc.a.n_head * n_col;
    sc.a.run = x->run;
    a->dev->ops->score(a->dev, &sc);
}

static float largest(const float *x, int n)
{
    float most[LANES], best;
    int j = 0;

    for (int i = 0; i < LANES; i++)
        most[i] = -INFINITY;
    for (; j + LANES <= n; j += LANES)
        for (int i = 0; i < LANES; i++)
            most[i] = x[j + i] > most[i] ? x[j + i] : most[i];
    best = most[0];
    for (int i = 1; i < LANES; i++)
        best = most[i] > best ? most[i] : best;
    for (; j < n; j++)
        best = x[j] > best ? x[j] : best;
    return best;
}

struct ranking {
    const struct attention *a;
    struct partial_keys *x;
    int n; /* slots */
    float alpha;
};

/* Counts the slots that each query head of a KV head has near its largest logit. The logits of the
 * first one become the ranks of slots: how far below the largest they are for the query head that
 * wants them most. */
static void rank_slots(void *ctx, int kv, int thread)
{
    const struct ranking *r = ctx;
    const int group = cb_attention_group(r->a), stride = r->a->bank->n_ctx;
    float *rank = r->x->logit + (size_t)(kv * group) * (size_t)stride;

    (void)thread;
    for (int g = 0; g < group; g++) {
        const float *x = rank + (size_t)g * (size_t)stride;
        const float top = largest(x, r->n), least = top - r->alpha;
        int near = 0;
        for (int j = 0; j < r->n; j++)
            near += x[j] >= least;
        for (int j = 0; j < r->n; j++) {
            const float y = x[j] - top;
            rank[j] = g && rank[j] > y ? rank[j] : y;
        }
        r->x->n_near[kv * group + g] = near;
    }
}

int cb_partial_keys_choose(struct attention *a, struct partial_keys *x, int l, int lo, int hi,
                           int most, int32_t *idx, int stride)
{
    struct ranking r = { a, x, hi - lo, a->plan[l].sketch.alpha };
    const int n_head = a->model->hp.n_head, group = cb_attention_group(a);
    int64_t sum = 0;
    int n;

    guess_logits(a, x, l, lo, hi);
    cb_par_for(a->dev->par, a->bank->n_kv, rank_slots, &r);
    for (int h = 0; h < n_head; h++)
        sum += x->n_near[h];
    n = min_int(max_int(1, (int)(sum / n_head)), min_int(most, hi - lo));
    for (int h = 0; h < a->bank->n_kv && n < hi - lo; h++, idx += stride) {
        a->dev->ops->topk(a->dev, x->logit + (size_t)(h * group) * (size_t)a->bank->n_ctx, hi - lo,
                          n, idx);
        for (int i = 0; i < n && lo; i++)
            idx[i] += lo;
    }
    return n;
}
