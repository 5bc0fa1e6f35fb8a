/* SPDX-License-Identifier: MIT */
/* attend.c - one layer's step of the cache: store the new keys and values, turn the plan row into
 * what is read, attend, and let the policy look, choose and compact. */
#include "attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bank/store_kivi.h"
#include "base/err.h"
#include "base/ints.h"
#include "chooser.h"
#include "cross_layer.h"
#include "evict.h"
#include "nearest_key.h"
#include "reading.h"
#include "rolling.h"
#include "scores.h"
#include "sparse_prefill.h"

struct attend {
    struct kv_run *run; /* [n_kv] */
    float *lse;         /* [chunk][n_head] */
    void **state;       /* [n_layer] the method's own */
    struct eviction *eviction;
    struct scores scores; /* of the layer that was attended to last */
    int has_scores;
};

/* ---- open ---- */

static int open_states(const struct cb_session *s, struct attend *a)
{
    const size_t n_layer = (size_t)s->model->hp.n_layer, bytes = s->policy->m->layer_bytes;

    a->state = cb_calloc(n_layer, sizeof *a->state);
    if (!a->state)
        return CB_ENOMEM;
    for (size_t l = 0; bytes && l < n_layer; l++)
        if (!(a->state[l] = cb_calloc(1, bytes)))
            return CB_ENOMEM;
    return CB_OK;
}

/* Does nothing but attention read layer l, and all of it, for each generated token? */
static int reads_all(const struct cb_session *s, int l)
{
    const struct method *m = s->policy->m;
    const struct layer_plan *p = &s->plan[l];

    return !m->fold && !m->rank && !s->cross_layer && !cb_prefill_is(s) &&
           p->read.what == READ_ALL && p->pos != POS_ONE && p->kv_of == l && !p->raw_keys;
}

/* May its rows lie in any order? What a policy looks at after each step then has to be the logits
 * that attention leaves behind. */
static int any_order(const struct cb_session *s, int l)
{
    const struct layer_plan *p = &s->plan[l];

    return reads_all(s, l) && !cb_selects(&p->read) && !s->model->hp.window &&
           (!cb_wants(&p->want, 0) || cb_scores_logits(s, l));
}

/* Can they be prepacked? What is dropped leaves no order. */
static int may_prepack(const struct cb_session *s, int l)
{
    const struct method *m = s->policy->m;
    const struct want *w = &s->plan[l].want;

    if (w->when == WHEN_NEVER && w->window > 1) /* what is chosen by scores of several queries */
        return 0;
    return m->compact ? any_order(s, l) : reads_all(s, l);
}

/* Unless it is to come out after a few tokens what the layer is. */
static int prepack_whole(struct cb_session *s, int l)
{
    return s->plan[l].want.when == WHEN_STEP ? CB_OK : cb_store_prepack(&s->store[l]);
}

int cb_attend_open(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    struct attend *a = s->attend = cb_calloc(1, sizeof *a);

    if (!a)
        return CB_ENOMEM;
    a->run = cb_calloc((size_t)hp->n_kv, sizeof *a->run);
    a->lse = cb_alloc_aligned((size_t)s->chunk * (size_t)hp->n_head, sizeof *a->lse);
    if (!a->run || !a->lse)
        return CB_ENOMEM;
    TRY(open_states(s, a));
    TRY(cb_reading_open(s));
    TRY(cb_rolling_open(s));
    TRY(cb_scores_open(s));
    TRY(cb_select_open(s));
    TRY(cb_cross_layer_open(s));
    for (int l = 0; l < hp->n_layer; l++) {
        s->store[l].any_order = any_order(s, l);
        if (may_prepack(s, l))
            cb_store_may_prepack(&s->store[l], s->dev);
    }
    if (!s->policy->m->compact)
        return CB_OK;
    TRY(cb_nearest_key_open(s));
    return cb_evict_new(s, &a->eviction);
}

void cb_attend_close(struct cb_session *s)
{
    struct attend *a = s->attend;

    cb_reading_close(s);
    cb_rolling_close(s);
    cb_scores_close(s);
    cb_select_close(s);
    cb_cross_layer_close(s);
    cb_nearest_key_close(s);
    if (!a)
        return;
    for (int l = 0; a->state && l < s->model->hp.n_layer; l++)
        free(a->state[l]);
    cb_evict_free(a->eviction);
    free(a->run);
    free(a->state);
    free(a->lse);
    free(a);
}

size_t cb_attend_bytes(const struct cb_session *s, int n_feed, int n_most, int n_kept)
{
    const size_t own = (size_t)s->chunk * (size_t)s->model->hp.n_head * sizeof(float) +
                       s->policy->state_bytes +
                       s->policy->m->layer_bytes * (size_t)s->model->hp.n_layer;

    return own + cb_reading_bytes(s, (size_t)n_most) + cb_rolling_bytes(s) +
           cb_scores_bytes(s, n_most) + cb_select_bytes(s, n_most) +
           cb_cross_layer_bytes(s, n_feed, n_most) + cb_nearest_key_bytes(s, n_most, n_kept) +
           (s->attend->eviction ? cb_evict_bytes(s, n_most) : 0);
}

int cb_attend_window(const struct cb_session *s, int l)
{
    const int own = s->model->hp.window, asked = s->plan[l].window;
    return own && asked ? (own < asked ? own : asked) : own + asked;
}

void cb_attend_clear(struct cb_session *s)
{
    memcpy(s->plan, s->plan_opened, (size_t)s->model->hp.n_layer * sizeof *s->plan);
    if (s->policy->state)
        memset(s->policy->state, 0, s->policy->state_bytes);
    for (int l = 0; l < s->model->hp.n_layer; l++)
        if (s->policy->m->layer_bytes)
            memset(s->attend->state[l], 0, s->policy->m->layer_bytes);
    cb_select_clear(s);
}

/* ---- attending ---- */

static void count_read(struct cb_session *s, int l)
{
    const struct store *st = &s->store[l];
    for (int h = 0; h < s->model->hp.n_kv; h++)
        s->kv_read_bytes += cb_store_run_bytes(st, &s->attend->run[h]);
}

/* The policy's look at one decoded token. */
static int step_scores(struct cb_session *s, int l, const struct attn *at)
{
    struct attend *a = s->attend;

    a->has_scores = cb_scores_step(s, l, at, &a->scores);
    for (int h = 0; !at->run[0].logit && h < s->model->hp.n_kv; h++) /* keys were read once more */
        s->kv_read_bytes += cb_store_bytes_of(&s->store[l], s->store[l].n[h]) / 2;
    return CB_OK;
}

/* The layer has attended: to a token, which chooses, or to queries that may count later. */
static void choose_for_others(struct cb_session *s, int l, const struct attn *at, int pos0)
{
    if (s->attend->run[0].logit)
        cb_select_step(s, l, at->q);
    else
        cb_select_chunk(s, l, at->q, at->q_stride, at->n_tok, pos0);
}

/* What the session that leads s has stored and attended to is s's as well, as far as it goes. */
static int follow(struct cb_session *s, int l, const struct attn *led, int pos0)
{
    const struct method *m = s->policy->m;
    const float *k = led->q + led->n_head * led->hd, *v = k + led->n_kv * led->hd;
    const int was = s->store[l].n[0], end = s->n_seen + s->n_feed;
    struct attn at = *led;

    s->attend->has_scores = 0;
    at.n_tok = min_int(led->n_tok, end - pos0);
    if (at.n_tok < 1)
        return CB_OK;
    for (int h = 0; h < at.n_kv; h++) {
        s->attend->run[h] = led->run[h];
        s->attend->run[h].n -= led->n_tok - at.n_tok;
    }
    at.run = s->attend->run;
    TRY(cb_store_append(&s->store[l], s->dev, k, v, led->q_stride, at.n_tok, pos0));
    if (m->fold)
        TRY(m->fold(s->policy, l, s->attend->state[l], was, was + at.n_tok));
    if (cb_selects(&s->plan[l].read))
        cb_select_chunk(s, l, at.q, at.q_stride, at.n_tok, pos0);
    if (cb_wants(&s->plan[l].want, 1))
        cb_scores_chunk(s, l, &at, pos0, end);
    return CB_OK;
}

/* Where the policy lets a query see the last tokens alone, the current one among them: what it does
 * not see goes, as no later one will, so that all that is left may be read in any order. */
static int forget_unseen(struct cb_session *s, int l)
{
    struct store *st = &s->store[l];
    const int window = st->any_order && !st->kivi ? s->plan[l].window : 0;

    for (int h = 0; window && h < st->n_kv; h++)
        while (st->n[h] >= window)
            TRY(cb_store_drop(st, h, 0));
    return CB_OK;
}

int cb_attend(struct cb_session *s, int l, const float *qkv, int n, int pos0, int pos_end,
              float *out)
{
    const struct hparams *hp = &s->model->hp;
    const struct method *m = s->policy->m;
    const int nq = hp->n_head * hp->hd, nkv = hp->n_kv * hp->hd, was = s->store[l].n[0];
    const int selects = cb_selects(&s->plan[l].read),
              wants = cb_wants(&s->plan[l].want, !s->decoding);
    struct attend *a = s->attend;
    const struct attn at = { .n_tok = n,
                             .n_head = hp->n_head,
                             .n_kv = hp->n_kv,
                             .hd = hp->hd,
                             .scale = 1.0f / sqrtf((float)hp->hd),
                             .causal = !s->decoding,
                             .window = cb_attend_window(s, l),
                             .type_k = s->store[l].type_k,
                             .type_v = s->store[l].type_v,
                             .run = a->run,
                             .q = qkv,
                             .q_stride = nq + 2 * nkv,
                             .logit_stride = s->n_ctx,
                             .out = out,
                             .lse = wants || s->n_follower ? a->lse : NULL };

    if (!s->decoding || s->plan[l].read.what != READ_ALL || cb_cross_layer_is(s, l))
        cb_store_pack(&s->store[l]);
    if (s->decoding)
        TRY(forget_unseen(s, l));
    TRY(cb_store_append(&s->store[l], s->dev, qkv + nq, qkv + nq + nkv, nq + 2 * nkv, n, pos0));
    if (m->fold)
        TRY(m->fold(s->policy, l, a->state[l], was, was + n));
    if (cb_cross_layer_is(s, l)) {
        TRY(cb_cross_layer_attention(s, l, &at, pos0, pos_end));
    } else {
        if (!cb_prefill_runs(s, l, pos0, n, a->run))
            TRY(cb_reading_runs(s, l, a->state[l], qkv, a->run));
        if (!cb_rolling(s, l, &at, a->run, a->lse))
            s->dev->ops->attention(s->dev, &at);
        count_read(s, l);
    }
    cb_prefill_chose(s, l, qkv, at.q_stride, n, pos0, pos_end);
    a->has_scores = 0;
    for (int i = 0; i < s->n_follower; i++)
        TRY(follow(s->follower[i], l, &at, pos0));
    if (selects)
        choose_for_others(s, l, &at, pos0);
    if (!wants)
        return CB_OK;
    if (s->decoding)
        return step_scores(s, l, &at);
    cb_scores_chunk(s, l, &at, pos0, pos_end);
    return CB_OK;
}

static void note_peak(struct cb_session *s, int l)
{
    const uint64_t now = cb_session_kv_bytes(s);
    const int n = cb_store_max_len(&s->store[l]);

    if (n > s->n_most)
        s->n_most = n;
    if (now > s->kv_peak_bytes)
        s->kv_peak_bytes = now;
}

/* The policy drops what it does not keep, and of the rest the oldest is quantised. */
static int settle(struct cb_session *s, int l, const struct scores *sc)
{
    struct attend *a = s->attend;

    if (s->policy->m->compact) {
        cb_evict_begin(a->eviction, l, !s->decoding);
        TRY(s->policy->m->compact(s->policy, l, a->state[l], sc, a->eviction));
        TRY(cb_evict_apply(a->eviction));
    }
    TRY(prepack_whole(s, l));
    if (!s->decoding)
        cb_store_huge_pages(&s->store[l]);
    return s->store[l].kivi ? cb_kivi_advance(&s->store[l], s->dev) : CB_OK;
}

int cb_attend_end(struct cb_session *s, int l)
{
    const struct method *m = s->policy->m;
    struct attend *a = s->attend;

    for (int i = 0; i < s->n_follower; i++)
        TRY(cb_attend_end(s->follower[i], l));
    if (!s->decoding || l == s->model->hp.n_layer - 1)
        note_peak(s, l);
    if (!s->decoding && cb_wants(&s->plan[l].want, 1)) {
        cb_scores_prompt(s, l, &a->scores);
        a->has_scores = 1;
    }
    if (a->has_scores && s->plan[l].want.sums)
        cb_scores_sum(s, l, &a->scores);
    if (a->has_scores && m->observe)
        TRY(m->observe(s->policy, l, a->state[l], &a->scores));
    if (l == s->model->hp.n_layer - 1)
        cb_cross_layer_end(s);
    if (s->decoding || !s->plan[l].late)
        TRY(settle(s, l, a->has_scores ? &a->scores : NULL));
    for (int i = 0; !s->decoding && l == s->model->hp.n_layer - 1 && i <= l; i++)
        if (s->plan[i].late)
            TRY(settle(s, i, NULL));
    return CB_OK;
}
