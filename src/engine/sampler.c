/* SPDX-License-Identifier: MIT */
/* sampler.c - picks a token from logits: biases, penalties, repetitions, grammar, top-k, typical,
 * top-p, min-p, XTC, temperature, then a draw; or Mirostat 2.0. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/splitmix.h"
#include "base/topk_heap.h"
#include "ctxbank.h"
#include "grammar/constraint.h"
#include "grammar/grammar.h"
#include "model/model.h"
#include "repetition.h"

struct cb_sampler {
    struct cb_sampler_params p;
    int n_vocab;
    uint64_t state;                /* of the random generator */
    struct topk_item *cand;        /* [n_vocab] x: logit, later probability */
    float *penalised;              /* [n_vocab] logits */
    int *count;                    /* [n_vocab] how often each token occurs in the window */
    int32_t *last;                 /* ring of the last tokens; used when the window is bounded */
    int64_t n_last;                /* tokens ever accepted */
    struct repetition *dry;        /* NULL = off */
    struct cb_logit_bias *bias;    /* [p.n_bias] */
    float mu;                      /* Mirostat: the most bits of a token */
    struct constraint *constraint; /* NULL = no grammar */
    float *masked;                 /* with a grammar: [n_vocab] logits of allowed tokens */
};

struct cb_sampler_params cb_sampler_defaults(void)
{
    return (struct cb_sampler_params){ .temp = 0.8f,
                                       .top_k = 40,
                                       .top_p = 0.95f,
                                       .min_p = 0.05f,
                                       .repeat_penalty = 1,
                                       .penalty_last_n = 64,
                                       .typical_p = 1,
                                       .xtc_threshold = 0.1f,
                                       .dry_base = 1.75f,
                                       .dry_allowed_length = 2,
                                       .dry_last_n = 4096,
                                       .mirostat_tau = 5,
                                       .mirostat_eta = 0.1f };
}

/* How many of the largest logits must be exact; 0 = all, as a penalty can bring another token to
 * the top. */
int cb_sampler_top(const struct cb_sampler_params *p)
{
    if (p->repeat_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0 ||
        p->dry_multiplier != 0 || p->n_bias)
        return 0;
    if (p->mirostat && p->temp > 0)
        return 0;
    return p->temp <= 0 ? 1 : p->top_k;
}

static int check(const struct cb_sampler_params *p, int n_vocab)
{
    if (n_vocab < 1)
        return cb_fail(CB_EARG, "sampler: a vocabulary of %d", n_vocab);
    if (isnan(p->temp) || isnan(p->top_p) || isnan(p->min_p) || isnan(p->frequency_penalty) ||
        isnan(p->presence_penalty) || !(p->repeat_penalty > 0))
        return cb_fail(CB_EARG, "sampler: repeat_penalty must be above 0, and all values numbers");
    if (isnan(p->typical_p) || isnan(p->xtc_probability) || isnan(p->xtc_threshold) ||
        isnan(p->dry_multiplier) || (p->dry_multiplier != 0 && !(p->dry_base >= 1)))
        return cb_fail(CB_EARG, "sampler: dry_base must be at least 1, and all values numbers");
    if ((p->mirostat && p->mirostat != 2) ||
        (p->mirostat && !(p->mirostat_tau > 0 && p->mirostat_eta >= 0)))
        return cb_fail(CB_EARG, "sampler: mirostat must be 0 or 2, with tau above 0");
    if (p->n_bias < 0 || p->n_dry_breaker < 0)
        return cb_fail(CB_EARG, "sampler: a list of fewer than 0 tokens");
    for (int i = 0; i < p->n_bias; i++)
        if (p->bias[i].token < 0 || p->bias[i].token >= n_vocab || isnan(p->bias[i].bias))
            return cb_fail(CB_EARG, "sampler: bias of token %d", p->bias[i].token);
    return CB_OK;
}

/* The lists of the caller, and what repetitions need */
static int copy_lists(cb_sampler *s)
{
    struct cb_sampler_params *p = &s->p;

    s->mu = 2 * p->mirostat_tau;
    if (p->dry_multiplier != 0 && p->dry_last_n > 0)
        TRY(cb_repetition_new(p->dry_last_n, s->n_vocab, p->dry_breaker, p->n_dry_breaker,
                              &s->dry));
    p->dry_breaker = NULL; /* the caller's; the repetitions know them */
    p->n_dry_breaker = 0;
    if (!p->n_bias)
        return CB_OK;
    s->bias = cb_calloc((size_t)p->n_bias, sizeof *s->bias);
    if (!s->bias)
        return CB_ENOMEM;
    memcpy(s->bias, p->bias, (size_t)p->n_bias * sizeof *s->bias);
    p->bias = s->bias;
    return CB_OK;
}

int cb_sampler_new(const struct cb_sampler_params *params, int n_vocab, cb_sampler **out)
{
    const struct cb_sampler_params defaults = cb_sampler_defaults();
    struct cb_sampler *s;

    *out = NULL;
    params = params ? params : &defaults;
    TRY(check(params, n_vocab));
    s = cb_calloc(1, sizeof *s);
    if (!s)
        return CB_ENOMEM;
    s->p = *params;
    s->n_vocab = n_vocab;
    s->state = params->seed;
    s->cand = cb_calloc((size_t)n_vocab, sizeof *s->cand);
    s->penalised = cb_calloc((size_t)n_vocab, sizeof *s->penalised);
    s->count = cb_calloc((size_t)n_vocab, sizeof *s->count);
    if (params->penalty_last_n > 0)
        s->last = cb_calloc((size_t)params->penalty_last_n, sizeof *s->last);
    if (!s->cand || !s->penalised || !s->count || (params->penalty_last_n > 0 && !s->last) ||
        copy_lists(s)) {
        cb_sampler_free(s);
        return CB_ENOMEM;
    }
    *out = s;
    return CB_OK;
}

void cb_sampler_free(cb_sampler *s)
{
    if (!s)
        return;
    free(s->cand);
    free(s->penalised);
    free(s->count);
    free(s->last);
    free(s->bias);
    cb_repetition_free(s->dry);
    cb_constraint_free(s->constraint);
    free(s->masked);
    free(s);
}

static int make_room(struct cb_sampler *s)
{
    if (!s->masked)
        s->masked = cb_calloc((size_t)s->n_vocab, sizeof *s->masked);
    return s->masked ? CB_OK : CB_ENOMEM;
}

int cb_sampler_fork(const cb_sampler *from, cb_sampler **out)
{
    const size_t n = (size_t)from->n_vocab;
    int rc = CB_OK;

    TRY(cb_sampler_new(&from->p, from->n_vocab, out));
    (*out)->state = from->state;
    (*out)->n_last = from->n_last;
    (*out)->mu = from->mu;
    memcpy((*out)->count, from->count, n * sizeof *from->count);
    if (from->last)
        memcpy((*out)->last, from->last, (size_t)from->p.penalty_last_n * sizeof *from->last);
    if (from->dry)
        rc = cb_repetition_fork(from->dry, &(*out)->dry);
    if (!rc && from->constraint)
        rc = make_room(*out);
    if (!rc && from->constraint)
        rc = cb_constraint_fork(from->constraint, &(*out)->constraint);
    if (rc) {
        cb_sampler_free(*out);
        *out = NULL;
    }
    return rc;
}

int cb_sampler_set_grammar(cb_sampler *s, cb_model *model, const cb_grammar *grammar)
{
    const struct token_trie *trie;
    struct constraint *c = NULL;

    if (grammar) {
        if (cb_n_vocab(model) != s->n_vocab)
            return cb_fail(CB_EARG, "grammar: the sampler is for %d tokens, the model has %d",
                           s->n_vocab, cb_n_vocab(model));
        TRY(make_room(s));
        TRY(cb_model_token_trie(model, &trie));
        TRY(cb_constraint_new(&grammar->program, trie, &c));
    }
    cb_constraint_free(s->constraint);
    s->constraint = c;
    return CB_OK;
}

void cb_sampler_accept(cb_sampler *s, int32_t token)
{
    const int w = s->p.penalty_last_n;

    if (s->constraint)
        cb_constraint_accept(s->constraint, token);
    if (token < 0 || token >= s->n_vocab)
        return;
    if (s->dry)
        cb_repetition_add(s->dry, token);
    if (w == 0)
        return;
    if (w > 0) {
        int32_t *slot = &s->last[s->n_last % w];
        if (s->n_last >= w)
            s->count[*slot]--;
        *slot = token;
    }
    s->n_last++;
    s->count[token]++;
}

/* 53 random bits in [0, 1) */
static double uniform(struct cb_sampler *s)
{
    return (double)(cb_splitmix(&s->state) >> 11) * 0x1p-53;
}

/* repeat: as in CTRL (Keskar et al. 2019): a positive logit is divided, a negative one multiplied
 */
static float penalised(const struct cb_sampler *s, float x, int count)
{
    if (!count)
        return x;
    if (x > 0)
        x /= s->p.repeat_penalty;
    else
        x *= s->p.repeat_penalty;
    return x - (float)count * s->p.frequency_penalty - s->p.presence_penalty;
}

static int in_order(const void *a, const void *b)
{
    return cb_topk_before(a, b) ? -1 : 1;
}

/* A token that would prolong a repetition */
static void dry(void *arg, int32_t token, int n)
{
    cb_sampler *s = arg;
    const struct cb_sampler_params *p = &s->p;

    if (n >= p->dry_allowed_length)
        s->penalised[token] -=
            p->dry_multiplier * powf(p->dry_base, (float)(n - p->dry_allowed_length));
}

/* The logits with biases and penalties */
static const float *with_penalties(struct cb_sampler *s, const float *logits)
{
    if (cb_sampler_top(&s->p) > 0)
        return logits;
    for (int i = 0; i < s->n_vocab; i++)
        s->penalised[i] = penalised(s, logits[i], s->count[i]);
    for (int i = 0; i < s->p.n_bias; i++)
        s->penalised[s->bias[i].token] += s->bias[i].bias;
    if (s->dry)
        cb_repetition_each(s->dry, dry, s);
    return s->penalised;
}

/* The first k tokens that the grammar allows -> cand, if they are among the first 2 k + 8 of all.
 * 1: they are; 0: not so */
static int take_near(struct cb_sampler *s, const float *x, int k)
{
    const int look = 2 * k + 8;
    int n = 0;

    if (look > s->n_vocab)
        return 0;
    cb_topk_heap(x, NULL, s->n_vocab, look, s->cand);
    qsort(s->cand, (size_t)look, sizeof *s->cand, in_order);
    for (int i = 0; i < look && n < k; i++) {
        const int allowed = cb_constraint_allows(s->constraint, s->cand[i].i);
        TRY(allowed);
        s->cand[n] = s->cand[i];
        s->cand[n].x = fmaxf(s->cand[n].x, -FLT_MAX);
        n += allowed;
    }
    return n == k;
}

/* Allowed logits stay, but above those that are not allowed, whatever they are; 64 at once, as most
 * masks are nearly empty or nearly full */
static void hide(const uint64_t *mask, const float *x, int n, float *out)
{
    for (int from = 0; from < n; from += 64) {
        const uint64_t bits = mask[from / 64];
        const int end = from + 64 < n ? from + 64 : n;
        if (bits == UINT64_MAX)
            for (int i = from; i < end; i++)
                out[i] = x[i] > -FLT_MAX ? x[i] : -FLT_MAX;
        else
            for (int i = from; i < end; i++)
                out[i] = -INFINITY;
        for (uint64_t left = bits == UINT64_MAX ? 0 : bits; left; left &= left - 1) {
            const int i = from + __builtin_ctzll(left);
            out[i] = x[i] > -FLT_MAX ? x[i] : -FLT_MAX;
        }
    }
}

/* The same of all tokens; returns how many of the k there are. */
static int take_masked(struct cb_sampler *s, const float *x, int k)
{
    const uint64_t *mask;
    const int n = cb_constraint_mask(s->constraint, &mask);

    TRY(n);
    hide(mask, x, s->n_vocab, s->masked);
    k = k < n ? k : n;
    cb_topk_heap(s->masked, NULL, s->n_vocab, k, s->cand);
    return k;
}

/* The k likeliest tokens -> cand, in no order; k <= n_vocab. Returns how many there are: less with
 * a grammar that allows fewer, negative if it fails */
static int take_first(struct cb_sampler *s, const float *logits, int k)
{
    const float *x = with_penalties(s, logits);

    if (s->constraint) {
        const int near = take_near(s, x, k);
        return near ? near < 0 ? near : k : take_masked(s, x, k);
    }
    cb_topk_heap(x, NULL, s->n_vocab, k, s->cand);
    return k;
}

/* cand[0..n-1] in order -> probabilities, at temperature 1 */
static void softmax(struct topk_item *c, int n)
{
    const float max = c[0].x;
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += c[i].x = expf(c[i].x - max);
    for (int i = 0; i < n; i++)
        c[i].x /= sum;
}

/* How many of the ordered candidates remain: those that together reach top_p, each >= min_p *
 * best. */
static int cut(const struct cb_sampler *s, int n)
{
    const struct topk_item *c = s->cand;
    float sum = 0;
    int m = 0;
    while (m < n && (m == 0 || (sum < s->p.top_p && c[m].x >= s->p.min_p * c[0].x)))
        sum += c[m++].x;
    return m;
}

static float surprise(const struct topk_item *c, float entropy)
{
    return c->x > 0 ? fabsf(-logf(c->x) - entropy) : INFINITY;
}

/* Moves the candidates whose surprise is nearest to the entropy, and that reach typical_p together,
 * to the front, in their order, and scales them to a sum of 1. Selection takes O(n) a candidate
 * that stays, and few stay. */
static int typical(const struct cb_sampler *s, int n)
{
    struct topk_item *c = s->cand, t;
    float entropy = 0, sum = 0;
    int m = 0;

    if (!(s->p.typical_p > 0 && s->p.typical_p < 1))
        return n;
    for (int i = 0; i < n; i++)
        entropy -= c[i].x > 0 ? c[i].x * logf(c[i].x) : 0;
    while (m < n && (m == 0 || sum < s->p.typical_p)) {
        int best = m;
        for (int i = m + 1; i < n; i++)
            if (surprise(&c[i], entropy) < surprise(&c[best], entropy))
                best = i;
        t = c[m];
        c[m] = c[best];
        c[best] = t;
        sum += c[m++].x;
    }
    qsort(c, (size_t)m, sizeof *c, in_order);
    for (int i = 0; i < m; i++)
        c[i].x /= sum;
    return m;
}

/* XTC: how many of the likeliest of the n candidates are passed over */
static int passed_over(struct cb_sampler *s, int n)
{
    float sum = 0;
    int above = 0;

    if (!(s->p.xtc_probability > 0) || s->p.xtc_threshold > 0.5f)
        return 0;
    if (uniform(s) >= (double)s->p.xtc_probability)
        return 0;
    for (int i = 0; i < n; i++)
        sum += s->cand[i].x;
    while (above < n && s->cand[above].x >= s->p.xtc_threshold * sum)
        above++;
    return above > 1 ? above - 1 : 0;
}

/* One of cand[from..n-1], by weights that need not add up to 1 */
static int draw(struct cb_sampler *s, int from, int n)
{
    const struct topk_item *c = s->cand;
    float sum = 0;
    double u;

    for (int i = from; i < n; i++)
        sum += c[i].x;
    u = uniform(s) * (double)sum;
    for (int i = from; i < n - 1; i++) {
        u -= (double)c[i].x;
        if (u < 0)
            return i;
    }
    return n - 1;
}

/* cand[0..n-1]: p -> p^(1/temp), scaled by the largest to stay in range */
static void heat(struct cb_sampler *s, int from, int n)
{
    const float max = s->cand[from].x;

    for (int i = from; i < n; i++)
        s->cand[i].x = powf(s->cand[i].x / max, 1 / s->p.temp);
}

/* Mirostat 2.0: of the n ordered candidates, those of at most mu bits are drawn from; mu follows
 * the surprise of the one that was drawn, which is that among all, as in the authors' code. */
static int32_t mirostat(struct cb_sampler *s, int n)
{
    struct topk_item *c = s->cand;
    float sum = 0;
    int m = 1, i;

    heat(s, 0, n);
    for (i = 0; i < n; i++)
        sum += c[i].x;
    while (m < n && -log2f(c[m].x / sum) <= s->mu)
        m++;
    i = draw(s, 0, m);
    s->mu -= s->p.mirostat_eta * (-log2f(c[i].x / sum) - s->p.mirostat_tau);
    return c[i].i;
}

int32_t cb_sampler_pick(cb_sampler *s, const float *logits)
{
    const int greedy = s->p.temp <= 0;
    const int few = s->p.top_k > 0 && s->p.top_k < s->n_vocab && !s->p.mirostat;
    struct topk_item *c = s->cand;
    int n = greedy ? 1 : few ? s->p.top_k : s->n_vocab, from;

    TRY(n = take_first(s, logits, n));
    if (greedy)
        return c[0].i;
    qsort(c, (size_t)n, sizeof *c, in_order);
    softmax(c, n);
    if (s->p.mirostat)
        return mirostat(s, n);
    n = cut(s, typical(s, n));
    from = passed_over(s, n);
    heat(s, from, n);
    return c[draw(s, from, n)].i;
}
