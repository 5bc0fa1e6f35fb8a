/* SPDX-License-Identifier: MIT */
/* repeat_scores.c - a query of the repetition weighs the first slots, those of its piece, and
 * the repetition up to itself. A slot's score is its largest weight for any query of any query head
 * of the KV head. */
#include "repeat_scores.h"

#include <math.h>
#include <stdlib.h>

#include "attention/parts.h"
#include "base/err.h"
#include "base/ints.h"

struct repeat_scores {
    int cap;            /* slots that idx and the rows of best hold */
    float *out, *lse;   /* [chunk][n_head * hd], [chunk][n_head] of one of the two parts */
    float *lse2;        /* [chunk][n_head] of the other */
    float *best;        /* [n_kv][cap] scores of a chunk's queries, logarithms to base 2 */
    int32_t *idx;       /* [cap] the first slots, and the piece */
    struct kv_run *run; /* [n_kv] */
};

int cb_prompt_repeat_open(struct attention *a)
{
    const size_t chunk = (size_t)a->chunk, nh = (size_t)a->model->hp.n_head;
    const struct repeat_plan *plan = cb_policy_repeat(a->policy);
    struct repeat_scores *x;

    if (!plan)
        return CB_OK;
    if (!(x = a->repeat_scores = cb_calloc(1, sizeof *x)))
        return CB_ENOMEM;
    x->cap = min_int(plan->sink + plan->piece, a->bank->n_ctx);
    x->out = cb_device_alloc(a->dev, chunk * cb_attention_row(a), sizeof *x->out);
    x->lse = cb_alloc_aligned(chunk * nh, sizeof *x->lse);
    x->lse2 = cb_alloc_aligned(chunk * nh, sizeof *x->lse2);
    x->best = cb_alloc_aligned((size_t)a->bank->n_kv * (size_t)x->cap, sizeof *x->best);
    x->idx = cb_calloc((size_t)x->cap, sizeof *x->idx);
    x->run = cb_calloc((size_t)a->bank->n_kv, sizeof *x->run);
    return x->out && x->lse && x->lse2 && x->best && x->idx && x->run ? CB_OK : CB_ENOMEM;
}

void cb_prompt_repeat_close(struct attention *a)
{
    struct repeat_scores *x = a->repeat_scores;

    if (!x)
        return;
    cb_device_free(a->dev, x->out);
    free(x->lse);
    free(x->lse2);
    free(x->best);
    free(x->idx);
    free(x->run);
    free(x);
}

size_t cb_prompt_repeat_bytes(const struct attention *a)
{
    const size_t nh = (size_t)a->model->hp.n_head, chunk = (size_t)a->chunk;

    if (!a->repeat_scores)
        return 0;
    return sizeof(float) * (chunk * (cb_attention_row(a) + 2 * nh) +
                            (size_t)a->repeat_scores->cap * ((size_t)a->bank->n_kv + 1));
}

/* The chunk's queries over a->repeat_scores->run: attention's log-sum-exp -> lse */
static struct attn weigh(struct attention *a, const struct chunk *c, int causal, float *lse)
{
    struct attn at = cb_parts_attn(a, c->l);

    at.n_tok = c->n;
    at.q = c->q;
    at.q_stride = c->stride;
    at.causal = causal;
    at.window = 0;
    at.run = a->repeat_scores->run;
    at.out = a->repeat_scores->out;
    at.lse = lse;
    a->dev->ops->attention(a->dev, &at, 1);
    return at;
}

/* The log-sum-exp over all that the chunk's queries weigh -> lse */
static void weigh_all(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    const struct piece *p = &a->repeated;
    const int sink = min_int(a->plan[c->l].repeat.sink, p->from);
    struct repeat_scores *x = a->repeat_scores;

    for (int j = 0; j < sink; j++)
        x->idx[j] = j;
    for (int j = p->from; j < p->to; j++)
        x->idx[sink + j - p->from] = j;
    for (int h = 0; h < st->n_kv; h++) {
        x->run[h] = cb_store_run(st, h, 0, st->n[h]);
        x->run[h].idx = x->idx;
        x->run[h].n = sink + p->to - p->from;
    }
    weigh(a, c, 0, x->lse);
    for (int h = 0; h < st->n_kv; h++)
        x->run[h] = cb_store_run(st, h, a->bank->n_seen, st->n[h]);
    weigh(a, c, 1, x->lse2);
}

int cb_prompt_repeat_chunk(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    const struct piece *p = &a->repeated;
    const int n = p->to - p->from;
    struct repeat_scores *x = a->repeat_scores;
    struct score sc = {
        .most = 1, .per = cb_attention_group(a), .out = x->best, .out_stride = x->cap
    };

    if (!a->plan[c->l].repeat.piece)
        return CB_OK;
    weigh_all(a, c);
    TRY(cb_device_wait(a->dev));
    for (int i = 0; i < c->n * a->model->hp.n_head; i++) {
        const double most = fmax((double)x->lse[i], (double)x->lse2[i]);
        x->lse[i] =
            (float)(most + log(exp((double)x->lse[i] - most) + exp((double)x->lse2[i] - most)));
    }
    for (int i = 0; i < st->n_kv * x->cap; i++)
        x->best[i] = -INFINITY;
    for (int h = 0; h < st->n_kv; h++)
        x->run[h] = cb_store_run(st, h, p->from, p->to);
    sc.a = cb_parts_attn(a, c->l);
    sc.a.n_tok = c->n;
    sc.a.q = c->q;
    sc.a.q_stride = c->stride;
    sc.a.causal = sc.a.window = 0;
    sc.a.run = x->run;
    sc.a.lse = x->lse;
    a->dev->ops->score(a->dev, &sc);
    TRY(cb_device_wait(a->dev));
    for (int h = 0; h < st->n_kv; h++) {
        float *col = cb_store_col(&a->bank->store[c->l], h, 0) + p->from;
        for (int j = 0; j < n; j++)
            col[j] = fmaxf(col[j], exp2f(x->best[(size_t)h * (size_t)x->cap + (size_t)j]));
    }
    return CB_OK;
}

void cb_prompt_repeat_scores(struct attention *a, int l, struct scores *out)
{
    struct store *st = &a->bank->store[l];
    const float *col = cb_store_col(st, 0, 0);

    *out = (struct scores){ .n_row = st->n_kv,
                            .n = cb_store_max_len(st),
                            .stride = st->n_col * st->cap,
                            .s = col,
                            .raw = col,
                            .prompt = 1 };
}
