/* SPDX-License-Identifier: MIT */
/* scores.c - attention score per stored entry, as a plan row wants it: gathered while a feed goes
 * through a layer, then reduced over query heads and pooled along tokens. */
#include "scores.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attend.h"
#include "base/err.h"
#include "sparse_prefill.h"

struct measured {
    int window;         /* longest of the plan's */
    float *q;           /* [window][n_head * hd] the feed's last queries */
    float *lse;         /* [window][n_head] */
    int n_q;            /* of them in use */
    float *score;       /* [n_head][n_ctx] */
    float *rows, *pool; /* [n_row][n_ctx] */
    float *weight;      /* [window] */
    float *out; /* [window][n_head * hd] of a prompt that is not dense; NULL where all are */
    struct kv_run *run; /* [n_kv] */
};

int cb_wants(const struct want *w, int prompt)
{
    return w->when == WHEN_ALWAYS || w->when == (prompt ? WHEN_PROMPT : WHEN_STEP);
}

static int alloc(float **p, size_t n)
{
    *p = cb_alloc_aligned(n, sizeof **p);
    return *p ? CB_OK : CB_ENOMEM;
}

int cb_scores_open(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    const size_t nh = (size_t)hp->n_head, ctx = (size_t)s->n_ctx;
    struct measured *m;
    int any = 0, window = 1;

    for (int l = 0; l < hp->n_layer; l++) {
        any |= s->plan[l].want.when != WHEN_NEVER;
        window = s->plan[l].want.window > window ? s->plan[l].want.window : window;
    }
    if (!any)
        return CB_OK;
    m = s->measured = cb_calloc(1, sizeof *m);
    if (!m)
        return CB_ENOMEM;
    m->window = window;
    TRY(alloc(&m->q, (size_t)window * nh * (size_t)hp->hd));
    TRY(alloc(&m->lse, (size_t)window * nh));
    TRY(alloc(&m->weight, (size_t)window));
    /* pages of these come as the context grows */
    TRY(alloc(&m->score, nh * ctx));
    TRY(alloc(&m->rows, nh * ctx));
    TRY(alloc(&m->pool, nh * ctx));
    if (cb_prefill_is(s))
        TRY(alloc(&m->out, (size_t)window * nh * (size_t)hp->hd));
    m->run = cb_calloc((size_t)hp->n_kv, sizeof *m->run);
    return m->run ? CB_OK : CB_ENOMEM;
}

void cb_scores_close(struct cb_session *s)
{
    struct measured *m = s->measured;
    if (!m)
        return;
    free(m->q);
    free(m->lse);
    free(m->weight);
    free(m->out);
    free(m->score);
    free(m->rows);
    free(m->pool);
    free(m->run);
    free(m);
}

/* How many rows a want has, and of how many query heads each. */
static int rows_of(const struct cb_session *s, const struct want *w, int *per)
{
    const struct hparams *hp = &s->model->hp;
    const int all = w->heads == MAX_HEADS || w->heads == MEAN_HEADS;
    const int n = w->heads == EACH_HEAD ? hp->n_head : all ? 1 : hp->n_kv;

    *per = hp->n_head / n;
    return n;
}

size_t cb_scores_bytes(const struct cb_session *s, int n_most)
{
    const struct hparams *hp = &s->model->hp;
    const struct measured *m = s->measured;
    const int nh = hp->n_head;
    int rows = 0, pool = 0, per;

    if (!m)
        return 0;
    for (int l = 0; l < hp->n_layer; l++) {
        const struct want *w = &s->plan_opened[l].want;
        const int n = rows_of(s, w, &per);
        const int most = w->band || cb_wants(w, 0) ? nh : w->when == WHEN_NEVER ? 0 : n;
        rows = most > rows ? most : rows;
        pool = w->pool > 1 && w->pool_kind != POOL_NONE && n > pool ? n : pool;
    }
    return sizeof(float) * ((size_t)(nh + rows + pool) * (size_t)n_most +
                            (size_t)m->window * (size_t)(nh * (m->out ? 2 : 1) * hp->hd + nh + 1));
}

/* The first n of each row */
static void clear_rows(float *row, int n_row, int stride, int n)
{
    for (int r = 0; r < n_row; r++)
        memset(row + (size_t)r * (size_t)stride, 0, (size_t)n * sizeof(float));
}

static void clear_score(struct cb_session *s, int n)
{
    clear_rows(s->measured->score, s->model->hp.n_head, s->n_ctx, n);
}

/* Adds the score of the queries in `a` to the rows of query heads. */
static void add_score(struct cb_session *s, int l, const struct attn *a, const float *weight)
{
    const struct score sc = { .a = *a,
                              .weight = weight,
                              .logit = s->plan[l].want.norm == NORM_LOGIT,
                              .out = s->measured->score,
                              .out_stride = s->n_ctx };
    s->dev->ops->score(s->dev, &sc);
}

/* The last `window` queries of a feed stay, across chunks. */
static void keep_queries(struct cb_session *s, int l, const struct attn *a, int pos0, int pos_end)
{
    const struct hparams *hp = &s->model->hp;
    struct measured *m = s->measured;
    const size_t row = (size_t)hp->n_head * (size_t)hp->hd, nh = (size_t)hp->n_head;
    const int first = pos_end - s->plan[l].want.window;

    for (int i = 0; i < a->n_tok; i++)
        if (pos0 + i >= first) {
            memcpy(m->q + (size_t)m->n_q * row, a->q + (size_t)i * (size_t)a->q_stride,
                   row * sizeof(float));
            memcpy(m->lse + (size_t)m->n_q * nh, a->lse + (size_t)i * nh, nh * sizeof(float));
            m->n_q++;
        }
}

static int sums_all(const struct cb_session *s, int l)
{
    return cb_wants(&s->plan[l].want, 1) && !s->plan[l].want.window;
}

/* Does x gather, of the prompt that both are fed, what s wants of layer l? */
static int gathers(const struct cb_session *x, const struct cb_session *s, int l)
{
    return sums_all(x, l) && x->n_feed == s->n_feed && x->n_ctx == s->n_ctx &&
           x->plan[l].want.norm == s->plan[l].want.norm;
}

/* Whose score of every query of a prompt is s's: of the sessions that share the prompt one gathers.
 */
static const struct cb_session *gatherer(const struct cb_session *s, int l)
{
    const struct cb_session *lead = s->led_by;

    if (!lead || !sums_all(s, l))
        return s;
    if (gathers(lead, s, l))
        return lead;
    for (int i = 0; i < lead->n_follower; i++)
        if (gathers(lead->follower[i], s, l))
            return lead->follower[i];
    return s;
}

void cb_scores_chunk(struct cb_session *s, int l, const struct attn *a, int pos0, int pos_end)
{
    if (gatherer(s, l) != s)
        return;
    if (pos0 == s->n_seen) { /* first chunk of the feed */
        s->measured->n_q = 0;
        clear_score(s, cb_store_max_len(&s->store[l]) + pos_end - pos0 - a->n_tok);
    }
    if (s->plan[l].want.window)
        keep_queries(s, l, a, pos0, pos_end);
    else
        add_score(s, l, a, NULL);
}

/* score[n_head][ctx] of one KV head's group, or of all -> one row */
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

/* Width w (odd), centred. The mean counts what is outside as 0; the maximum ignores it. */
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

static int is_pooled(const struct want *w)
{
    return w->pool > 1 && w->pool_kind != POOL_NONE;
}

/* Rows of scores as hooks get them, once they are there */
static void hand_over(struct cb_session *s, int l, const float *rows, int n_query, int prompt,
                      struct scores *out)
{
    const struct want *w = &s->plan[l].want;
    struct measured *m = s->measured;
    int per;

    *out = (struct scores){ .n_row = rows_of(s, w, &per),
                            .n = cb_store_max_len(&s->store[l]),
                            .stride = s->n_ctx,
                            .s = is_pooled(w) ? m->pool : rows,
                            .raw = rows,
                            .n_query = n_query,
                            .prompt = prompt };
    for (int r = 0; is_pooled(w) && r < out->n_row; r++) {
        const int n = s->store[l].n[r * s->model->hp.n_kv / out->n_row];
        const size_t at = (size_t)r * (size_t)s->n_ctx;
        /* the observation window itself is not pooled into what is before it */
        pool_row(w->pool_kind, w->pool, rows + at, prompt && w->window < n ? n - w->window : n,
                 m->pool + at);
    }
}

/* score -> rows */
static void finish(struct cb_session *s, int l, int n_query, int prompt, struct scores *out)
{
    const struct hparams *hp = &s->model->hp;
    const struct want *w = &s->plan[l].want;
    const float *score = (prompt ? gatherer(s, l) : s)->measured->score;
    const int group = hp->n_head / hp->n_kv, ctx = s->n_ctx;
    int per;
    const int n_row = rows_of(s, w, &per);

    for (int r = 0; r < n_row; r++)
        reduce(score + (size_t)(r * per) * (size_t)ctx, w->heads, per,
               s->store[l].n[r * per / group], ctx, s->measured->rows + (size_t)r * (size_t)ctx);
    hand_over(s, l, s->measured->rows, n_query, prompt, out);
}

static struct attn over_store(struct cb_session *s, int l)
{
    const struct hparams *hp = &s->model->hp;
    const struct store *st = &s->store[l];

    for (int h = 0; h < hp->n_kv; h++)
        s->measured->run[h] = cb_store_run(st, h, 0, st->n[h]);
    return (struct attn){ .n_head = hp->n_head,
                          .n_kv = hp->n_kv,
                          .hd = hp->hd,
                          .scale = 1.0f / sqrtf((float)hp->hd),
                          .causal = 1,
                          .window = cb_attend_window(s, l),
                          .type_k = st->type_k,
                          .type_v = st->type_v,
                          .run = s->measured->run };
}

/* score holds what falls on each query's band; its first `sink` entries get all of theirs instead,
 * so that nothing counts twice where the two overlap. */
static void add_sinks(struct cb_session *s, int l, struct attn a)
{
    const struct want *w = &s->plan[l].want;
    struct measured *m = s->measured;
    const int n = cb_store_max_len(&s->store[l]), n_sink = w->sink < n ? w->sink : n;
    struct score sc = { .a = a, .weight = m->weight, .out = m->rows, .out_stride = s->n_ctx };

    sc.a.window = cb_attend_window(s, l);
    clear_rows(m->rows, a.n_head, s->n_ctx, n);
    s->dev->ops->score(s->dev, &sc);
    for (int h = 0; h < a.n_head; h++)
        memcpy(m->score + (size_t)h * (size_t)s->n_ctx, m->rows + (size_t)h * (size_t)s->n_ctx,
               (size_t)n_sink * sizeof(float));
}

/* The log-sum-exp of queries that have read a part, over all. */
static void whole_lse(struct cb_session *s, const struct attn *a)
{
    struct attn all = *a;

    all.out = s->measured->out;
    s->dev->ops->attention(s->dev, &all);
}

void cb_scores_prompt(struct cb_session *s, int l, struct scores *out)
{
    const struct hparams *hp = &s->model->hp;
    const struct want *w = &s->plan[l].want;
    struct measured *m = s->measured;

    if (w->window) {
        struct attn a = over_store(s, l);
        a.n_tok = m->n_q;
        a.q = m->q;
        a.q_stride = hp->n_head * hp->hd;
        a.lse = m->lse;
        if (cb_prefill_partly(s,
                              l)) /* score is of all tokens, so is the sum that it is a part of */
            whole_lse(s, &a);
        for (int i = 0; i < m->n_q; i++)
            m->weight[i] = w->decay > 0 ? powf(w->decay, (float)(m->n_q - 1 - i)) : 1;
        if (w->band)
            a.window = w->band;
        add_score(s, l, &a, m->weight);
        if (w->band)
            add_sinks(s, l, a);
    }
    finish(s, l, w->window ? m->n_q : s->n_feed, 1, out);
}

float *cb_scores_logits(const struct cb_session *s, int l)
{
    const struct layer_plan *p = &s->plan[l];
    const int all = !cb_attend_window(s, l) && p->pos != POS_SLOT;
    return all && p->want.norm == NORM_SOFTMAX ? s->measured->rows : NULL;
}

/* Attention has left its logits: scores go where they are wanted, without a stop. */
static int step_given(struct cb_session *s, int l, const struct attn *a, struct scores *out)
{
    const struct want *w = &s->plan[l].want;
    struct store *st = &s->store[l];
    struct measured *m = s->measured;
    struct score sc = { .a = *a, .out_stride = s->n_ctx, .out = m->score };
    const int n_row = rows_of(s, w, &sc.per);
    const float weight = 1.0f / (float)sc.per;

    if (w->sums) {
        const int n_sum = s->policy->slot_floats;
        assert(n_sum == 1 || n_sum == st->n_col); /* or rows would not lie evenly */
        sc.per = a->n_head / (a->n_kv * n_sum);
        sc.out = cb_store_col(st, 0, 0);
        sc.out_stride = n_sum == 1 ? st->n_col * st->cap : st->cap;
        s->dev->ops->score(s->dev, &sc);
        return 0;
    }
    sc.weight = &weight;
    clear_rows(m->score, n_row, s->n_ctx, cb_store_max_len(st));
    s->dev->ops->score(s->dev, &sc);
    hand_over(s, l, m->score, 1, 0, out);
    return 1;
}

int cb_scores_step(struct cb_session *s, int l, const struct attn *at, struct scores *out)
{
    const enum by_heads heads = s->plan[l].want.heads;
    struct attn a = over_store(s, l);

    a.n_tok = 1;
    a.q = at->q;
    a.q_stride = s->model->hp.n_head * s->model->hp.hd;
    a.lse = at->lse;
    if (at->run[0].logit == s->measured->rows) { /* attention has left them there */
        for (int h = 0; h < a.n_kv; h++) {
            s->measured->run[h].logit = at->run[h].logit;
            s->measured->run[h].given = 1;
        }
        a.causal = 0;
        a.logit_stride = at->logit_stride;
        if (heads != PER_KV_HEAD_MAX && heads != MAX_HEADS)
            return step_given(s, l, &a, out);
    }
    clear_score(s, cb_store_max_len(&s->store[l]));
    add_score(s, l, &a, NULL);
    finish(s, l, 1, 0, out);
    return 1;
}

void cb_scores_sum(struct cb_session *s, int l, const struct scores *x)
{
    struct store *st = &s->store[l];
    const int heads = x->n_row / st->n_kv;

    for (int r = 0; r < x->n_row; r++) {
        float *restrict sum =
            cb_store_col(st, r / heads, r % heads * s->policy->slot_floats / heads);
        const float *restrict score = x->raw + (size_t)r * (size_t)x->stride;
        for (int j = 0; j < st->n[r / heads]; j++)
            sum[j] += score[j];
    }
}
