/* SPDX-License-Identifier: MIT */
/* sampler.c - picks a token from logits: penalties, grammar, top-k, top-p, min-p, temperature, then
 * a draw. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/topk_heap.h"
#include "ctxbank.h"
#include "grammar/constraint.h"
#include "grammar/grammar.h"
#include "model/model.h"

struct cb_sampler {
    struct cb_sampler_params p;
    int n_vocab;
    uint64_t state;                /* of the random generator */
    struct topk_item *cand;        /* [n_vocab] x: logit, later probability */
    float *penalised;              /* [n_vocab] logits */
    int *count;                    /* [n_vocab] how often each token occurs in the window */
    int32_t *last;                 /* ring of the last tokens; used when the window is bounded */
    int64_t n_last;                /* tokens ever accepted */
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
                                       .penalty_last_n = 64 };
}

/* How many of the largest logits must be exact; 0 = all, as a penalty can bring another token to
 * the top. */
int cb_sampler_top(const struct cb_sampler_params *p)
{
    if (p->repeat_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0)
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
    if (!s->cand || !s->penalised || !s->count || (params->penalty_last_n > 0 && !s->last)) {
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
    memcpy((*out)->count, from->count, n * sizeof *from->count);
    if (from->last)
        memcpy((*out)->last, from->last, (size_t)from->p.penalty_last_n * sizeof *from->last);
    if (from->constraint)
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
    if (w == 0 || token < 0 || token >= s->n_vocab)
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

/* splitmix64 (Steele, Lea, Flood 2014): 53 random bits in [0, 1) */
static double uniform(struct cb_sampler *s)
{
    uint64_t z = s->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
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

/* The logits with penalties */
static const float *with_penalties(struct cb_sampler *s, const float *logits)
{
    if (cb_sampler_top(&s->p) > 0)
        return logits;
    for (int i = 0; i < s->n_vocab; i++)
        s->penalised[i] = penalised(s, logits[i], s->count[i]);
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

int32_t cb_sampler_pick(cb_sampler *s, const float *logits)
{
    const int greedy = s->p.temp <= 0, few = s->p.top_k > 0 && s->p.top_k < s->n_vocab;
    struct topk_item *c = s->cand;
    int n = greedy ? 1 : few ? s->p.top_k : s->n_vocab;
    float sum = 0, max;
    double u;

    TRY(n = take_first(s, logits, n));
    if (greedy)
        return c[0].i;
    qsort(c, (size_t)n, sizeof *c, in_order);
    softmax(c, n);
    n = cut(s, n);
    /* p^(1/temp), scaled by the largest to stay in range */
    max = c[0].x;
    for (int i = 0; i < n; i++)
        sum += c[i].x = powf(c[i].x / max, 1 / s->p.temp);
    u = uniform(s) * (double)sum;
    for (int i = 0; i < n - 1; i++) {
        u -= (double)c[i].x;
        if (u < 0)
            return c[i].i;
    }
    return c[n - 1].i;
}
