/* SPDX-License-Identifier: MIT */
/* repeat_scores.c - scores of a prompt's slots by how much the model attends to them while it
 * repeats the prompt (KVzip, Kim et al. 2025, section 3.2). The engine feeds the repetition piece
 * by piece (engine/prompt_repeat.c) and takes its keys and values back. A query of it weighs the
 * first slots, those of its piece, and the repetition up to itself. A slot's score is its largest
 * weight for any query of any query head of the KV head. */
#include <math.h>

#include "attention/parts.h"
#include "attention/scoring.h"
#include "attention/state_memory.h"
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

static int claims(const struct layer_plan *row)
{
    return row->repeat.piece > 0;
}

static int open(struct attention *a, void *state)
{
    const size_t chunk = (size_t)a->chunk, nh = (size_t)a->model->hp.n_head;
    const struct repeat_plan *plan = cb_policy_repeat(a->policy);
    struct repeat_scores *x = state;

    x->cap = min_int(plan->sink + plan->piece, a->bank->n_ctx);
    x->out = cb_state_device(x, a->dev, chunk * cb_attention_row(a), sizeof *x->out);
    x->lse = cb_state_alloc(x, chunk * nh, sizeof *x->lse);
    x->lse2 = cb_state_alloc(x, chunk * nh, sizeof *x->lse2);
    x->best = cb_state_alloc(x, (size_t)a->bank->n_kv * (size_t)x->cap, sizeof *x->best);
    x->idx = cb_state_calloc(x, (size_t)x->cap, sizeof *x->idx);
    x->run = cb_state_calloc(x, (size_t)a->bank->n_kv, sizeof *x->run);
    return CB_OK;
}

/* The chunk's queries over x->run */
static struct attn over_runs(struct attention *a, const struct chunk *c, int causal)
{
    const struct repeat_scores *x = cb_scoring_state(a, c->l);
    struct attn at = cb_parts_attn(a, c->l);

    at.n_tok = c->n;
    at.q = c->q;
    at.q_stride = c->stride;
    at.causal = causal;
    at.window = 0;
    at.run = x->run;
    return at;
}

/* Attention's log-sum-exp -> lse */
static void weigh(struct attention *a, const struct chunk *c, int causal, float *lse)
{
    const struct repeat_scores *x = cb_scoring_state(a, c->l);
    struct attn at = over_runs(a, c, causal);

    at.out = x->out;
    at.lse = lse;
    a->dev->ops->attention(a->dev, &at, 1);
}

/* The log-sum-exp over all that the chunk's queries weigh -> lse */
static void weigh_all(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    const struct piece *p = &a->repeated;
    const int sink = min_int(a->plan[c->l].repeat.sink, p->from);
    struct repeat_scores *x = cb_scoring_state(a, c->l);

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

/* The scores of the piece's slots go to column 0. */
static int chunk(struct attention *a, const struct chunk *c, const struct attention *read,
                 const float *lse, int first)
{
    const struct store *st = &a->bank->store[c->l];
    const struct piece *p = &a->repeated;
    const int n = p->to - p->from;
    struct repeat_scores *x = cb_scoring_state(a, c->l);
    struct score sc = {
        .most = 1, .per = cb_attention_group(a), .out = x->best, .out_stride = x->cap
    };

    (void)read, (void)lse, (void)first;
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
    sc.a = over_runs(a, c, 0);
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

static void prompt(struct attention *a, int l, struct scores *out)
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

const struct scoring cb_scoring_repeat = {
    .by_repeat = 1,
    .claims = claims,
    .state = sizeof(struct repeat_scores),
    .open = open,
    .chunk = chunk,
    .prompt = prompt,
};
