/* SPDX-License-Identifier: MIT */
/* scores.c - the attention scores that a plan row wants: softmax weights per stored token, gathered
 * while a feed goes through a layer, then reduced over query heads and pooled along tokens. */
#include "scores.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/parts.h"
#include "attention/prefill.h"
#include "attention/reader.h"
#include "base/err.h"
#include "expected_scores.h"

struct scoring {
    int window;         /* the longest window in the plan */
    float *q;           /* [window][n_head * hd] the feed's last queries */
    float *lse;         /* [window][n_head] */
    int n_q;            /* queries in use */
    float *score;       /* [n_head][n_ctx] */
    float *rows, *pool; /* [n_row][n_ctx] */
    float *sums;        /* [2][n_kv][n_ctx] where squares are wanted: of scores, of their squares */
    float *out;         /* [window][n_head * hd] for sparse prefill, else NULL */
    float *weight;      /* [chunk] of queries; NULL: each has weight 1 */
    struct kv_run *run; /* [n_head] */
};

int cb_scores_wanted(const struct attention *a, int l, int prompt)
{
    const int i = cb_policy_index(a->policy, l);
    const enum when when = i < 0 ? WHEN_NEVER : a->policy->watch[i];
    return when == WHEN_ALWAYS || when == (prompt ? WHEN_PROMPT : WHEN_STEP);
}

static int alloc(float **p, size_t n)
{
    *p = cb_alloc_aligned(n, sizeof **p);
    return *p ? CB_OK : CB_ENOMEM;
}

int cb_scores_open(struct attention *a)
{
    const size_t nh = (size_t)a->model->hp.n_head, ctx = (size_t)a->bank->n_ctx;
    struct scoring *m;
    int any = 0, window = 1, squares = 0, weights = 0;

    for (int l = 0; l < a->bank->n_layer; l++) {
        any |= a->plan[l].score.when != WHEN_NEVER;
        squares |= a->plan[l].score.squares;
        weights |= a->plan[l].score.share > 0 || a->plan[l].score.squares;
        window = a->plan[l].score.window > window ? a->plan[l].score.window : window;
    }
    if (!any)
        return CB_OK;
    m = a->scoring = cb_calloc(1, sizeof *m);
    if (!m)
        return CB_ENOMEM;
    m->window = window;
    m->q = cb_device_alloc(a->dev, (size_t)window * cb_attention_row(a), sizeof *m->q);
    if (!m->q)
        return CB_ENOMEM;
    TRY(alloc(&m->lse, (size_t)window * nh));
    /* memory for these is committed page by page as the context grows */
    TRY(alloc(&m->score, nh * ctx));
    TRY(alloc(&m->rows, nh * ctx));
    TRY(alloc(&m->pool, nh * ctx));
    if (squares)
        TRY(alloc(&m->sums, 2 * (size_t)a->bank->n_kv * ctx));
    if (weights)
        TRY(alloc(&m->weight, (size_t)a->chunk));
    if (cb_prefill_is(a))
        TRY(alloc(&m->out, (size_t)window * cb_attention_row(a)));
    m->run = cb_calloc(nh, sizeof *m->run);
    return m->run ? cb_expected_open(a) : CB_ENOMEM;
}

void cb_scores_close(struct attention *a)
{
    struct scoring *m = a->scoring;

    cb_expected_close(a);
    if (!m)
        return;
    cb_device_free(a->dev, m->q);
    free(m->lse);
    free(m->out);
    free(m->weight);
    free(m->score);
    free(m->rows);
    free(m->pool);
    free(m->sums);
    free(m->run);
    free(m);
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
    const struct scoring *m = a->scoring;
    const int nh = a->model->hp.n_head;
    int rows = 0, pool = 0, per;

    if (!m)
        return 0;
    for (int l = 0; l < a->bank->n_layer; l++) {
        const struct score_plan *w = &a->plan[l].score;
        const int n = rows_of(a, w, &per), steps = w->when == WHEN_ALWAYS || w->when == WHEN_STEP;
        const int most = w->band || steps || m->out ? nh : w->when == WHEN_NEVER ? 0 : n;
        rows = most > rows ? most : rows;
        pool = w->pool > 1 && w->pool_kind != POOL_NONE && n > pool ? n : pool;
    }
    return cb_expected_bytes(a) +
           sizeof(float) *
               ((size_t)(nh + rows + pool + (m->sums ? 2 * a->bank->n_kv : 0)) * (size_t)n_most +
                (m->weight ? (size_t)a->chunk : 0) +
                (size_t)m->window * (cb_attention_row(a) * (m->out ? 2 : 1) + (size_t)nh));
}

/* Clears the first n entries of each row. */
static void clear_rows(float *row, int n_row, int stride, int n)
{
    for (int r = 0; r < n_row; r++)
        memset(row + (size_t)r * (size_t)stride, 0, (size_t)n * sizeof(float));
}

static void clear_scores(struct attention *a, int n)
{
    clear_rows(a->scoring->score, a->model->hp.n_head, a->bank->n_ctx, n);
}

/* Adds to out[n_head][n_ctx] the softmax weights that each entry of `at` gets from its queries. */
static void add_scores(struct attention *a, const struct attn *at, float *out)
{
    const struct score sc = { .a = *at, .out = out, .out_stride = a->bank->n_ctx };
    a->dev->ops->score(a->dev, &sc);
}

/* ---- every query of a prompt ---- */

/* Adds the scores of a part's entries to the scores of their slots. */
static void scatter(struct attention *a, const struct part *p, int n)
{
    for (int h = 0; h < a->model->hp.n_head; h++) {
        const float *x = a->scoring->rows + (size_t)h * (size_t)a->bank->n_ctx;
        float *y = a->scoring->score + (size_t)h * (size_t)a->bank->n_ctx;
        for (int j = 0; j < n; j++)
            y[j < p->n_slot ? p->slot[j] : p->after + j - p->n_slot] += x[j];
    }
}

/* The scores of part i in the list of `read`, for the chunk's first c->n queries. */
static void add_part(struct attention *a, const struct chunk *c, const struct attention *read,
                     int i, const float *lse)
{
    const struct part *p = cb_parts_at(read, i);
    const int moved = p->n_slot > 0 || p->after > 0;
    struct attn at = cb_parts_attn_of(read, c->l, i);
    int n = 0;

    for (int h = 0; h < at.n_kv; h++) {
        a->scoring->run[h] = at.run[h];
        if (at.causal && p->first + p->n > c->n) /* a follower's prompt ends earlier */
            a->scoring->run[h].n -= p->first + p->n - c->n;
        n = a->scoring->run[h].n > n ? a->scoring->run[h].n : n;
    }
    at.run = a->scoring->run;
    at.n_tok = p->first + p->n > c->n ? c->n - p->first : p->n;
    at.lse = (float *)(uintptr_t)(lse + (size_t)p->first * (size_t)at.n_head); /* only read */
    if (at.n_tok < 1)
        return;
    if (moved)
        clear_rows(a->scoring->rows, at.n_head, a->bank->n_ctx, n);
    add_scores(a, &at, moved ? a->scoring->rows : a->scoring->score);
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

/* Adds the scores of each of the chunk's queries, and their squares, after the mean over a KV
 * head's query heads. The layer is read as one part. */
static void add_squares(struct attention *a, const struct chunk *c, const float *lse)
{
    struct scoring *m = a->scoring;
    struct score sc = { .a = cb_parts_attn_of(a, c->l, 0),
                        .weight = m->weight,
                        .per = cb_attention_group(a),
                        .out = m->sums,
                        .out_stride = a->bank->n_ctx,
                        .squares = m->sums + (size_t)a->bank->n_kv * (size_t)a->bank->n_ctx };

    m->n_q += c->n;
    for (int i = 0; i < c->n; i++)
        m->weight[i] = 1.0f / (float)sc.per;
    sc.a.lse = (float *)(uintptr_t)lse; /* only read */
    a->dev->ops->score(a->dev, &sc);
}

/* Adds the scores of those of the chunk's queries that are among the last ones of the prompt. */
static void add_last(struct attention *a, const struct chunk *c, const float *lse)
{
    const struct score_plan *w = &a->plan[c->l].score;
    const int n = 1 + (int)(w->share * a->bank->n_feed), first = c->pos_end - n;
    const int from = first > c->pos0 ? first - c->pos0 : 0;
    const double more = n > 1 ? ((double)w->last - 1) / (n - 1) : 0;
    struct score sc = { .a = cb_parts_attn_of(a, c->l, 0),
                        .weight = a->scoring->weight,
                        .out = a->scoring->score,
                        .out_stride = a->bank->n_ctx };

    if (from >= c->n)
        return;
    for (int i = from; i < c->n; i++)
        a->scoring->weight[i - from] = (float)(1 + more * (c->pos0 + i - first));
    sc.a.n_tok = c->n - from;
    sc.a.q += (size_t)from * (size_t)sc.a.q_stride;
    sc.a.lse = (float *)(uintptr_t)(lse + (size_t)from * (size_t)sc.a.n_head); /* only read */
    a->dev->ops->score(a->dev, &sc);
}

static int sums_all(const struct attention *a, int l)
{
    const struct score_plan *w = &a->plan[l].score;
    return cb_scores_wanted(a, l, 1) && !w->window && !w->future;
}

/* Does x gather the scores that a wants of layer l, from the prompt that both are fed? */
static int gathers(const struct attention *x, const struct attention *a, int l)
{
    return sums_all(x, l) && x->bank->n_feed == a->bank->n_feed && x->bank->n_ctx == a->bank->n_ctx;
}

/* The session that gathers the scores of every query of the prompt for a. Among sessions that share
 * a prompt, one gathers for all. */
static const struct attention *gatherer(const struct attention *a, int l)
{
    const struct attention *lead = a->leader;

    if (!lead || !sums_all(a, l))
        return a;
    if (gathers(lead, a, l))
        return lead;
    for (int i = 0; i < lead->n_follower; i++)
        if (gathers(lead->follower[i], a, l))
            return lead->follower[i];
    return a;
}

/* ---- the last queries of a prompt ---- */

/* Keeps the last queries of the prompt, across chunks. */
static void keep_queries(struct attention *a, const struct chunk *c, const float *lse)
{
    struct scoring *m = a->scoring;
    const size_t row = cb_attention_row(a), nh = (size_t)a->model->hp.n_head;
    const int first = c->pos_end - a->plan[c->l].score.window;
    const int i = first > c->pos0 ? first - c->pos0 : 0;

    if (i >= c->n)
        return;
    cb_device_copy_rows(a->dev, m->q + (size_t)m->n_q * row, row * sizeof(float),
                        c->q + (size_t)i * (size_t)c->stride, (size_t)c->stride * sizeof(float),
                        row * sizeof(float), c->n - i);
    memcpy(m->lse + (size_t)m->n_q * nh, lse + (size_t)i * nh,
           (size_t)(c->n - i) * nh * sizeof(float));
    m->n_q += c->n - i;
}

void cb_scores_chunk(struct attention *a, const struct chunk *c, const struct attention *read,
                     const float *lse)
{
    const int every = cb_prefill_drops_every(a, c->l);

    if (gatherer(a, c->l) != a)
        return;
    if (!(every ? (c->pos0 - a->bank->n_seen) % every : c->pos0 - a->bank->n_seen)) {
        /* the first chunk of the feed, or after a drop within it */
        a->scoring->n_q = 0;
        const int n = cb_store_max_len(&a->bank->store[c->l]) + c->pos_end - c->pos0 - c->n;
        clear_scores(a, n);
        if (a->scoring->sums)
            clear_rows(a->scoring->sums, 2 * a->bank->n_kv, a->bank->n_ctx, n);
    }
    if (a->plan[c->l].score.future)
        cb_expected_chunk(a, c, c->pos0 == a->bank->n_seen);
    else if (a->plan[c->l].score.window)
        keep_queries(a, c, lse);
    else if (a->plan[c->l].score.squares)
        add_squares(a, c, lse);
    else if (a->plan[c->l].score.share > 0)
        add_last(a, c, lse);
    else
        for (int i = 0; i < cb_parts_n(read); i++)
            add_part(a, c, read, i, lse);
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

/* Makes *out, the scores that hooks get, from finished rows; pools them if the plan says so. */
static void hand_over(struct attention *a, int l, const float *rows, int n_query, int prompt,
                      struct scores *out)
{
    const struct score_plan *w = &a->plan[l].score;
    const struct store *st = &a->bank->store[l];
    struct scoring *m = a->scoring;
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

static void finish(struct attention *a, int l, int n_query, int prompt, struct scores *out)
{
    const struct score_plan *w = &a->plan[l].score;
    const float *score = (prompt ? gatherer(a, l) : a)->scoring->score;
    const int group = cb_attention_group(a), ctx = a->bank->n_ctx;
    int per;
    const int n_row = rows_of(a, w, &per);

    for (int r = 0; r < n_row; r++)
        reduce(score + (size_t)(r * per) * (size_t)ctx, w->heads, per,
               a->bank->store[l].n[r * per / group], ctx,
               a->scoring->rows + (size_t)r * (size_t)ctx);
    for (int r = 0; prompt && w->future && r < n_row; r++)
        cb_expected_by_value(a, l, r, w->eps, a->scoring->rows + (size_t)r * (size_t)ctx);
    hand_over(a, l, a->scoring->rows, n_query, prompt, out);
}

/* Attention over the whole store of layer l, without queries */
static struct attn over_store(struct attention *a, int l)
{
    const struct store *st = &a->bank->store[l];
    struct attn at = cb_parts_attn(a, l);

    for (int h = 0; h < st->n_kv; h++)
        a->scoring->run[h] = cb_store_run(st, h, 0, st->n[h]);
    at.run = a->scoring->run;
    return at;
}

/* score holds the weights within each query's band. The first `sink` entries are replaced by their
 * full weights, so that nothing counts twice where band and sinks overlap. */
static void add_sinks(struct attention *a, int l, struct attn at)
{
    struct scoring *m = a->scoring;
    const int n = cb_store_max_len(&a->bank->store[l]), sink = a->plan[l].score.sink;
    const size_t n_sink = (size_t)(sink < n ? sink : n);

    at.window = cb_attention_window(a, l);
    clear_rows(m->rows, at.n_head, a->bank->n_ctx, n);
    add_scores(a, &at, m->rows);
    for (int h = 0; h < at.n_head; h++)
        memcpy(m->score + (size_t)h * (size_t)a->bank->n_ctx,
               m->rows + (size_t)h * (size_t)a->bank->n_ctx, n_sink * sizeof(float));
}

/* The log-sum-exp over the whole store, for queries that have read only a part of it. */
static void whole_lse(struct attention *a, const struct attn *at)
{
    struct attn all = *at;

    all.out = a->scoring->out;
    a->dev->ops->attention(a->dev, &all, 1);
}

void cb_scores_prompt(struct attention *a, int l, struct scores *out)
{
    const struct score_plan *w = &a->plan[l].score;
    struct scoring *m = a->scoring;

    if (w->squares) {
        hand_over(a, l, m->sums, m->n_q, 1, out);
        out->squares = m->sums + (size_t)a->bank->n_kv * (size_t)a->bank->n_ctx;
        return;
    }
    if (w->future) {
        cb_expected_scores(a, l, m->score, a->bank->n_ctx);
    } else if (w->window) {
        struct attn at = over_store(a, l);
        at.n_tok = m->n_q;
        at.q = m->q;
        at.lse = m->lse;
        if (cb_prefill_is(a) &&
            a->prompt.how->partly(a, l)) /* scores are over all tokens, lse must be too */
            whole_lse(a, &at);
        if (w->band)
            at.window = w->band;
        add_scores(a, &at, m->score);
        if (w->band)
            add_sinks(a, l, at);
        if (a->layer[l]->r->mask)
            a->layer[l]->r->mask(a, l, m->score);
    }
    finish(a, l, w->window ? m->n_q : a->bank->n_feed, 1, out);
}

/* ---- a decoded token ---- */

float *cb_scores_logits(const struct attention *a, int l)
{
    return !cb_attention_window(a, l) && cb_reader_has(a, l, READ_PLAIN) ? a->scoring->rows : NULL;
}

/* Attention has left its logits: the op writes the scores straight to the columns or rows
 * wanted. */
static int step_left(struct attention *a, int l, const struct attn *at, struct scores *out)
{
    const struct score_plan *w = &a->plan[l].score;
    struct store *st = &a->bank->store[l];
    struct scoring *m = a->scoring;
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
    clear_rows(m->score, n_row, a->bank->n_ctx, cb_store_max_len(st));
    a->dev->ops->score(a->dev, &sc);
    hand_over(a, l, m->score, 1, 0, out);
    return 1;
}

int cb_scores_step(struct attention *a, const struct chunk *c, const float *lse, int left,
                   struct scores *out)
{
    const enum by_heads heads = a->plan[c->l].score.heads;
    struct attn at = over_store(a, c->l);

    at.n_tok = 1;
    at.q = c->q;
    at.lse = (float *)(uintptr_t)lse; /* only read */
    if (left) {
        const size_t group = (size_t)cb_attention_group(a), ctx = (size_t)a->bank->n_ctx;
        for (int h = 0; h < at.n_kv; h++) {
            a->scoring->run[h].logit = a->scoring->rows + (size_t)h * group * ctx;
            a->scoring->run[h].given = 1;
        }
        at.causal = 0;
        if (heads != PER_KV_HEAD_MAX && heads != MAX_HEADS)
            return step_left(a, c->l, &at, out);
    }
    clear_scores(a, cb_store_max_len(&a->bank->store[c->l]));
    if (cb_reader_has(a, c->l, READ_BY_PARTS)) /* at the positions that were read */
        for (int i = 0; i < cb_parts_n(a); i++)
            add_part(a, c, a, i, lse);
    else
        add_scores(a, &at, a->scoring->score);
    finish(a, c->l, 1, 0, out);
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
