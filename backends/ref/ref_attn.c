/* SPDX-License-Identifier: MIT */
/* ref_attn.c - attention and scores by the textbook: all logits, their maximum, their exponentials,
 * one query and one head at a time. */
#include "ref_attn.h"

#include <assert.h>
#include <math.h>

#include "device/kivi.h"
#include "ref_rows.h"

enum { MAX_HD = KV_MAX_HD };

/* The entries [lo, hi) of its run that a query reads. */
struct span {
    int lo, hi;
};

static struct span visible(const struct attn *a, const struct kv_run *run, int i)
{
    struct span s = { 0, run->n };

    if (a->causal)
        s.hi = run->n - a->n_tok + 1 + i;
    if (a->window > 0 && s.hi > a->window)
        s.lo = s.hi - a->window;
    return s;
}

/* 0: entry j is in a block that query i of head h skips */
static int reads(const struct attn *a, int i, int h, int j)
{
    const struct attn_blocks *b = a->blocks;
    const int kv = h / (a->n_head / a->n_kv);

    return !b || b->reads[((int64_t)kv * b->n_row + cb_attn_blocks_row(b, i)) * b->n_col +
                          j / KV_PREPACK];
}

static const float *query(const struct attn *a, int i, int h)
{
    return a->q + (int64_t)i * a->q_stride + (int64_t)h * a->hd;
}

static const struct kv_run *run_of(const struct attn *a, int h)
{
    return &a->run[h / (a->n_head / a->n_kv)];
}

/* The key or value of entry j. */
static void entry(const struct attn *a, const struct kv_run *run, int v, int j, float *y)
{
    const int64_t slot = (run->idx ? run->idx[j] : j) + run->first;
    const int row = run->kivi ? cb_kivi_row_of(run->kivi, v, (int)slot) : -1;

    if (row >= 0)
        cb_kivi_get(run->kivi, v, row, a->hd, y);
    else
        cb_ref_kv_row(v ? a->type_v : a->type_k, v ? run->v : run->k, slot, a->hd, y);
}

/* The scaled logit of query q against entry j. */
static double logit(const struct attn *a, const struct kv_run *run, const float *q, int j)
{
    float k[MAX_HD];
    double s = 0.0;

    entry(a, run, 0, j, k);
    for (int c = 0; c < a->hd; c++)
        s += (double)q[c] * (double)k[c];
    s *= (double)a->scale;
    return a->softcap > 0.0f ? (double)a->softcap * tanh(s / (double)a->softcap) : s;
}

/* The row that a head's logits are written to or read from; NULL = none. */
static float *logit_row(const struct attn *a, const struct kv_run *run, int h)
{
    return run->logit ? run->logit + (int64_t)(h % (a->n_head / a->n_kv)) * a->logit_stride : NULL;
}

/* Computes the logits twice instead of storing them. */
static void attend_one(const struct attn *a, int i, int h)
{
    const struct kv_run *run = run_of(a, h);
    const struct span s = visible(a, run, i);
    const float *q = query(a, i, h), *given = run->given ? logit_row(a, run, h) : NULL;
    float *out = a->out + ((int64_t)i * a->n_head + h) * a->hd;
    double acc[MAX_HD] = { 0 }, max = -INFINITY, sum = 0.0;
    float v[MAX_HD];

    for (int j = s.lo; j < s.hi; j++) {
        if (!reads(a, i, h, j))
            continue;
        const double x = given ? (double)given[j] : logit(a, run, q, j);
        max = fmax(max, x);
        if (run->logit && !given)
            logit_row(a, run, h)[j] = (float)x;
    }
    for (int j = s.lo; j < s.hi; j++) {
        if (!reads(a, i, h, j))
            continue;
        const double p = exp((given ? (double)given[j] : logit(a, run, q, j)) - max);
        entry(a, run, 1, j, v);
        sum += p;
        for (int c = 0; c < a->hd; c++)
            acc[c] += p * (double)v[c];
    }
    for (int c = 0; c < a->hd; c++)
        out[c] = sum > 0.0 ? (float)(acc[c] / sum) : 0.0f;
    if (a->lse)
        a->lse[(int64_t)i * a->n_head + h] = sum > 0.0 ? (float)(max + log(sum)) : -INFINITY;
}

static void attend_item(void *ctx, int item, int thread)
{
    const struct attn *a = ctx;

    (void)thread;
    attend_one(a, item / a->n_head, item % a->n_head);
}

void cb_ref_attention(struct device *d, const struct attn *a, int n)
{
    for (int i = 0; i < n; i++) {
        struct attn copy = a[i];
        assert(copy.hd <= MAX_HD && copy.n_head % copy.n_kv == 0);
        cb_par_for(d->par, copy.n_tok * copy.n_head, attend_item, &copy);
    }
}

/* One entry's score of one head, over all queries: the sum, or the largest as a logarithm */
static double score_of(const struct score *sc, int h, int j)
{
    const struct attn *a = &sc->a;
    const struct kv_run *run = run_of(a, h);
    double sum = sc->most ? -INFINITY : 0.0;

    for (int i = 0; i < a->n_tok; i++) {
        const struct span s = visible(a, run, i);
        const double weight = sc->weight ? (double)sc->weight[i] : 1.0;
        double x;
        if (j < s.lo || j >= s.hi)
            continue;
        x = run->given ? (double)logit_row(a, run, h)[run->order ? run->order[j] : j]
                       : logit(a, run, query(a, i, h), j);
        if (sc->most)
            sum = fmax(sum, (x - (double)a->lse[(int64_t)i * a->n_head + h]) / log(2));
        else
            sum += weight * (sc->logit ? x : exp(x - (double)a->lse[(int64_t)i * a->n_head + h]));
    }
    return sum;
}

static int heads_a_row(const struct score *sc)
{
    return sc->per ? sc->per : 1;
}

static void score_row(void *ctx, int r, int thread)
{
    const struct score *sc = ctx;
    const int per = heads_a_row(sc);
    float *out = sc->out + (int64_t)r * sc->out_stride;

    (void)thread;
    for (int h = r * per; h < (r + 1) * per; h++)
        for (int j = 0; j < run_of(&sc->a, h)->n; j++)
            out[j] = sc->most ? fmaxf(out[j], (float)score_of(sc, h, j))
                              : (float)((double)out[j] + score_of(sc, h, j));
}

/* The logits of query i, in rows of its own */
static void score_apart(void *ctx, int i, int thread)
{
    const struct score *sc = ctx;
    const struct attn *a = &sc->a;

    (void)thread;
    for (int h = 0; h < a->n_head; h++) {
        const struct span s = visible(a, run_of(a, h), i);
        const double weight = sc->weight ? (double)sc->weight[i] : 1.0;
        float *out = sc->out + (size_t)i * sc->tok_stride +
                     (size_t)(h / heads_a_row(sc)) * (size_t)sc->out_stride;
        for (int j = s.lo; j < s.hi; j++) {
            const double x = weight * logit(a, run_of(a, h), query(a, i, h), j);
            float *y = sc->piece ? out + cb_score_piece(sc->piece, j) : out + j;
            *y = sc->piece ? fmaxf(*y, (float)x) : (float)((double)*y + x);
        }
    }
}

/* One KV head's scores of each query, and their squares, over all queries */
static void score_squares(void *ctx, int kv, int thread)
{
    const struct score *sc = ctx;
    const struct attn *a = &sc->a;
    const int group = a->n_head / a->n_kv;

    (void)thread;
    for (int j = 0; j < a->run[kv].n; j++) {
        const int64_t at = (int64_t)kv * sc->out_stride + j;
        double sum = 0.0, squares = 0.0;
        for (int i = 0; i < a->n_tok; i++) {
            const struct span s = visible(a, &a->run[kv], i);
            const double weight = sc->weight ? (double)sc->weight[i] : 1.0;
            double p = 0.0;
            for (int h = kv * group; j >= s.lo && j < s.hi && h < (kv + 1) * group; h++)
                p += weight * exp(logit(a, run_of(a, h), query(a, i, h), j) -
                                  (double)a->lse[(int64_t)i * a->n_head + h]);
            sum += p;
            squares += p * p;
        }
        sc->out[at] = (float)((double)sc->out[at] + sum);
        sc->squares[at] = (float)((double)sc->squares[at] + squares);
    }
}

/* One query's scores */
static void score_rectified(void *ctx, int i, int thread)
{
    const struct score *sc = ctx;
    const struct attn *a = &sc->a;
    const struct span s = visible(a, a->run, i);
    float *out = sc->out + (int64_t)i * sc->out_stride;

    (void)thread;
    for (int j = s.lo; j < s.hi; j++) {
        double sum = 0.0;
        for (int h = 0; h < a->n_head; h++)
            sum += (sc->weight ? (double)sc->weight[(int64_t)i * a->q_stride + h] : 1.0) *
                   fmax(0.0, logit(a, a->run, query(a, i, h), j));
        out[j] = (float)((double)out[j] + sum);
    }
}

/* Sums, for one entry, each query's largest score over the heads. */
static void score_peak(void *ctx, int j, int thread)
{
    const struct score *sc = ctx;
    const struct attn *a = &sc->a;
    double sum = 0.0;

    (void)thread;
    for (int i = 0; i < a->n_tok; i++) {
        double max = -INFINITY;
        for (int h = 0; h < a->n_head; h++)
            max = fmax(max, logit(a, run_of(a, h), query(a, i, h), j) -
                                (double)a->lse[(int64_t)i * a->n_head + h]);
        sum += (sc->weight ? (double)sc->weight[i] : 1.0) * exp(max);
    }
    sc->out[j] = (float)((double)sc->out[j] + sum);
}

void cb_ref_score(struct device *d, const struct score *s)
{
    struct score copy = *s;

    assert(s->a.hd <= MAX_HD && s->a.n_head % s->a.n_kv == 0);
    if (s->peak) {
        cb_par_for(d->par, s->a.run->n, score_peak, &copy);
        return;
    }
    if (s->tok_stride) {
        cb_par_for(d->par, s->a.n_tok, score_apart, &copy);
        return;
    }
    if (s->rectified) {
        cb_par_for(d->par, s->a.n_tok, score_rectified, &copy);
        return;
    }
    if (s->squares) {
        cb_par_for(d->par, s->a.n_kv, score_squares, &copy);
        return;
    }
    cb_par_for(d->par, s->a.n_head / heads_a_row(s), score_row, &copy);
}

/* With m the larger lse, the weights are exp(lse - m) and exp(lse2 - m). The sum of the weights
 * gives the new lse. */
void cb_ref_join(struct device *d, float *out, float *lse, const float *out2, const float *lse2,
                 int n_row, int hd)
{
    (void)d;
    for (int r = 0; r < n_row; r++) {
        const double m = fmax((double)lse[r], (double)lse2[r]);
        const double a = m > -INFINITY ? exp((double)lse[r] - m) : 1.0;
        const double b = m > -INFINITY ? exp((double)lse2[r] - m) : 0.0;
        for (int64_t c = (int64_t)r * hd; c < (int64_t)(r + 1) * hd; c++)
            out[c] = (float)((a * (double)out[c] + b * (double)out2[c]) / (a + b));
        lse[r] = (float)(m + log(a + b));
    }
}

void cb_ref_sink(struct device *d, float *out, float *lse, const float *sink, int n_tok, int n_head,
                 int hd)
{
    (void)d;
    for (int64_t r = 0; r < (int64_t)n_tok * n_head; r++) {
        const double x = (double)sink[r % n_head], old = (double)lse[r], m = fmax(old, x);
        const double all = m + log(exp(old - m) + exp(x - m));
        for (int64_t c = r * hd; c < (r + 1) * hd; c++)
            out[c] = (float)((double)out[c] * exp(old - all));
        lse[r] = (float)all;
    }
}
