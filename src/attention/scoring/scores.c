/* SPDX-License-Identifier: MIT */
/* scores.c - the attention scores that a plan row wants: softmax weights per stored token, gathered
 * while a feed goes through a layer, then reduced over query heads and pooled along tokens. */
#include "scores.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "attention/context_split.h"
#include "attention/parts.h"
#include "attention/prefill.h"
#include "attention/reader.h"
#include "attention/scoring.h"
#include "attention/state_memory.h"
#include "base/err.h"

int cb_scores_wanted(const struct attention *a, int l, int prompt)
{
    const int i = cb_policy_index(a->policy, l);

    return i >= 0 && a->policy->watch[i] & (prompt ? WHEN_PROMPT : WHEN_STEP);
}

int cb_scores_open(struct attention *a)
{
    const size_t nh = (size_t)a->model->hp.n_head, ctx = (size_t)a->bank->n_ctx;
    struct score_space *m;
    int any = 0;

    for (int l = 0; l < a->bank->n_layer; l++)
        any |= a->plan[l].score.when != WHEN_NEVER;
    if (!any)
        return CB_OK;
    if (!(m = a->scores_at = cb_state_new(sizeof *m)))
        return CB_ENOMEM;
    /* memory for these is committed page by page as the context grows */
    m->score = cb_state_alloc(m, nh * ctx, sizeof *m->score);
    m->rows = cb_state_alloc(m, nh * ctx, sizeof *m->rows);
    m->pool = cb_state_alloc(m, nh * ctx, sizeof *m->pool);
    m->run = cb_state_calloc(m, nh, sizeof *m->run);
    return cb_state_status(m);
}

/* The number of rows wanted; *per: query heads a row. */
static int rows_of(const struct attention *a, const struct score_plan *w, int *per)
{
    const struct hparams *hp = &a->model->hp;
    const int all = w->heads == MAX_HEADS || w->heads == MEAN_HEADS;
    const int n = w->heads == EACH_HEAD ? hp->n_head : all ? 1 : hp->n_kv;

    *per = hp->n_head / n;
    return n;
}

size_t cb_scores_bytes(const struct attention *a, int n_most)
{
    const int nh = a->model->hp.n_head;
    int rows = 0, pool = 0, per;

    if (!a->scores_at)
        return 0;
    for (int l = 0; l < a->bank->n_layer; l++) {
        const struct score_plan *w = &a->plan[l].score;
        const int n = rows_of(a, w, &per), steps = w->when & WHEN_STEP;
        const int most = w->band || steps || cb_prefill_is(a) ? nh : w->when == WHEN_NEVER ? 0 : n;
        rows = most > rows ? most : rows;
        pool = w->pool > 1 && w->pool_kind != POOL_NONE && n > pool ? n : pool;
    }
    return sizeof(float) * (size_t)(nh + rows + pool) * (size_t)n_most;
}

void cb_scores_clear(float *row, int n_row, int stride, int n)
{
    for (int r = 0; r < n_row; r++)
        memset(row + (size_t)r * (size_t)stride, 0, (size_t)n * sizeof(float));
}

void cb_scores_add(struct attention *a, const struct attn *at, float *out)
{
    const struct score sc = { .a = *at, .out = out, .out_stride = a->bank->n_ctx };
    a->dev->ops->score(a->dev, &sc);
}

/* ---- every query of a prompt ---- */

/* Adds the scores of a part's entries to the scores of their slots. */
static void scatter(struct attention *a, const struct part *p, int n)
{
    for (int h = 0; h < a->model->hp.n_head; h++) {
        const float *x = a->scores_at->rows + (size_t)h * (size_t)a->bank->n_ctx;
        float *y = a->scores_at->score + (size_t)h * (size_t)a->bank->n_ctx;
        for (int j = 0; j < n; j++)
            y[j < p->n_slot ? p->slot[j] : p->after + j - p->n_slot] += x[j];
    }
}

void cb_scores_add_part(struct attention *a, const struct chunk *c, const struct attention *read,
                        int i, const float *lse)
{
    const struct part *p = cb_parts_at(read, i);
    const int moved = p->n_slot > 0 || p->after > 0;
    struct attn at = cb_parts_attn_of(read, c->l, i);
    int n = 0;

    for (int h = 0; h < at.n_kv; h++) {
        a->scores_at->run[h] = at.run[h];
        if (at.causal && p->first + p->n > c->n) /* a follower's prompt ends earlier */
            a->scores_at->run[h].n -= p->first + p->n - c->n;
        n = a->scores_at->run[h].n > n ? a->scores_at->run[h].n : n;
    }
    at.run = a->scores_at->run;
    at.n_tok = p->first + p->n > c->n ? c->n - p->first : p->n;
    at.lse = (float *)(uintptr_t)(lse + (size_t)p->first * (size_t)at.n_head); /* only read */
    if (at.n_tok < 1)
        return;
    if (moved)
        cb_scores_clear(a->scores_at->rows, at.n_head, a->bank->n_ctx, n);
    cb_scores_add(a, &at, moved ? a->scores_at->rows : a->scores_at->score);
    if (moved)
        scatter(a, p, n);
}

/* score[n_head][ctx] of one KV head's group, or of all heads -> one row */
static void reduce(const float *score, enum by_heads how, int n_head, int n, int ctx, float *row)
{
    const int is_max = how == PER_KV_HEAD_MAX || how == MAX_HEADS;

    memcpy(row, score, (size_t)n * sizeof *row);
    for (int h = 1; h < n_head; h++) {
        const float *x = score + (size_t)h * (size_t)ctx;
        for (int j = 0; j < n; j++)
            row[j] = !is_max ? row[j] + x[j] : row[j] > x[j] ? row[j] : x[j];
    }
    for (int j = 0; !is_max && j < n; j++)
        row[j] /= (float)n_head;
}

/* ---- from scores of query heads to rows ---- */

/* Pools over a centred window of width w (odd). The mean counts entries outside the row as 0; the
 * maximum ignores them. */
static void pool_row(enum pool_kind kind, int w, const float *x, int n, float *y)
{
    const int r = w / 2;
    for (int j = 0; j < n; j++) {
        const int from = j - r > 0 ? j - r : 0, to = j + r < n - 1 ? j + r : n - 1;
        float v = kind == POOL_MAX ? x[from] : 0;
        for (int i = from; i <= to; i++)
            v = kind == POOL_MAX ? fmaxf(v, x[i]) : v + x[i];
        y[j] = kind == POOL_MAX ? v : v / (float)w;
    }
}

static int is_pooled(const struct score_plan *w)
{
    return w->pool > 1 && w->pool_kind != POOL_NONE;
}

void cb_scores_hand_over(struct attention *a, int l, const float *rows, int n_query, int prompt,
                         struct scores *out)
{
    const struct score_plan *w = &a->plan[l].score;
    const struct store *st = &a->bank->store[l];
    struct score_space *m = a->scores_at;
    int per;

    *out = (struct scores){ .n_row = rows_of(a, w, &per),
                            .n = cb_store_max_len(st),
                            .stride = a->bank->n_ctx,
                            .s = is_pooled(w) ? m->pool : rows,
                            .raw = rows,
                            .n_query = n_query,
                            .prompt = prompt };
    for (int r = 0; is_pooled(w) && r < out->n_row; r++) {
        const int n = st->n[r * st->n_kv / out->n_row];
        const size_t at = (size_t)r * (size_t)a->bank->n_ctx;
        /* the observation window is not pooled into the tokens before it */
        pool_row(w->pool_kind, w->pool, rows + at, prompt && w->window < n ? n - w->window : n,
                 m->pool + at);
    }
}

int cb_scores_reduce(struct attention *a, int l, const float *score)
{
    const struct score_plan *w = &a->plan[l].score;
    const int group = cb_attention_group(a), ctx = a->bank->n_ctx;
    int per;
    const int n_row = rows_of(a, w, &per);

    for (int r = 0; r < n_row; r++)
        reduce(score + (size_t)(r * per) * (size_t)ctx, w->heads, per,
               a->bank->store[l].n[r * per / group], ctx,
               a->scores_at->rows + (size_t)r * (size_t)ctx);
    return n_row;
}

/* ---- prompts ---- */

int cb_scores_most(const struct attention *a, const struct chunk *c)
{
    return cb_context_split_works(a)
               ? a->bank->n_feed
               : cb_store_max_len(&a->bank->store[c->l]) + c->pos_end - c->pos0 - c->n;
}

/* Does x gather the scores that a wants of layer l, from the prompt that both are fed? */
static int gathers(const struct attention *x, const struct attention *a, int l)
{
    const struct score_plan *p = &x->plan[l].score, *q = &a->plan[l].score;

    return x->scored[l] && x->scored[l]->how == a->scored[l]->how && cb_scores_wanted(x, l, 1) &&
           p->share == q->share && p->last == q->last && x->bank->n_feed == a->bank->n_feed &&
           x->bank->n_ctx == a->bank->n_ctx;
}

const struct attention *cb_scores_gatherer(const struct attention *a, int l)
{
    const struct attention *lead = a->leader;

    if (!lead || !a->scored[l]->how->shared)
        return a;
    if (gathers(lead, a, l))
        return lead;
    for (int i = 0; i < lead->n_follower; i++)
        if (gathers(lead->follower[i], a, l))
            return lead->follower[i];
    return a;
}

void cb_scores_summed(struct attention *a, int l, struct scores *out)
{
    cb_scores_reduce(a, l, cb_scores_gatherer(a, l)->scores_at->score);
    cb_scores_hand_over(a, l, a->scores_at->rows, a->bank->n_feed, 1, out);
}

struct attn cb_scores_over_store(struct attention *a, int l)
{
    const struct store *st = &a->bank->store[l];
    struct attn at = cb_parts_attn(a, l);

    for (int h = 0; h < st->n_kv; h++)
        a->scores_at->run[h] = cb_store_run(st, h, 0, st->n[h]);
    at.run = a->scores_at->run;
    return at;
}

/* ---- a decoded token ---- */

float *cb_scores_logits(const struct attention *a, int l)
{
    return !cb_attention_window(a, l) && cb_reader_has(a, l, READ_PLAIN) ? a->scores_at->rows
                                                                         : NULL;
}

/* Attention has left its logits: the op writes the scores straight to the columns or rows
 * wanted. */
static int step_left(struct attention *a, int l, const struct attn *at, struct scores *out)
{
    const struct score_plan *w = &a->plan[l].score;
    struct store *st = &a->bank->store[l];
    struct score_space *m = a->scores_at;
    struct score sc = { .a = *at, .out_stride = a->bank->n_ctx, .out = m->score };
    const int n_row = rows_of(a, w, &sc.per);
    const float weight = 1.0f / (float)sc.per;

    if (w->sums) {
        const int n_sum = a->policy->slot_floats;
        assert(n_sum == 1 || n_sum == st->n_col); /* else rows are not evenly spaced */
        sc.per = at->n_head / (at->n_kv * n_sum);
        sc.out = cb_store_col(st, 0, 0);
        sc.out_stride = n_sum == 1 ? st->n_col * st->cap : st->cap;
        a->dev->ops->score(a->dev, &sc);
        return 0;
    }
    sc.weight = &weight;
    cb_scores_clear(m->score, n_row, a->bank->n_ctx, cb_store_max_len(st));
    a->dev->ops->score(a->dev, &sc);
    cb_scores_hand_over(a, l, m->score, 1, 0, out);
    return 1;
}

int cb_scores_step(struct attention *a, const struct chunk *c, const float *lse, int left,
                   struct scores *out)
{
    const enum by_heads heads = a->plan[c->l].score.heads;
    struct attn at = cb_scores_over_store(a, c->l);

    at.n_tok = 1;
    at.q = c->q;
    at.lse = (float *)(uintptr_t)lse; /* only read */
    if (left) {
        const size_t group = (size_t)cb_attention_group(a), ctx = (size_t)a->bank->n_ctx;
        for (int h = 0; h < at.n_kv; h++) {
            a->scores_at->run[h].logit = a->scores_at->rows + (size_t)h * group * ctx;
            a->scores_at->run[h].given = 1;
        }
        at.causal = 0;
        if (heads != PER_KV_HEAD_MAX && heads != MAX_HEADS)
            return step_left(a, c->l, &at, out);
    }
    cb_scores_clear(a->scores_at->score, at.n_head, a->bank->n_ctx,
                    cb_store_max_len(&a->bank->store[c->l]));
    if (cb_reader_has(a, c->l, READ_BY_PARTS)) /* at the positions that were read */
        for (int i = 0; i < cb_parts_n(a); i++)
            cb_scores_add_part(a, c, a, i, lse);
    else
        cb_scores_add(a, &at, a->scores_at->score);
    cb_scores_reduce(a, c->l, a->scores_at->score);
    cb_scores_hand_over(a, c->l, a->scores_at->rows, 1, 0, out);
    return 1;
}

void cb_scores_sum(struct attention *a, int l, const struct scores *x)
{
    struct store *st = &a->bank->store[l];
    const int heads = x->n_row / st->n_kv;

    for (int r = 0; r < x->n_row; r++) {
        float *restrict sum =
            cb_store_col(st, r / heads, r % heads * a->policy->slot_floats / heads);
        const float *restrict score = x->raw + (size_t)r * (size_t)x->stride;
        for (int j = 0; j < st->n[r / heads]; j++)
            sum[j] += score[j];
    }
}
