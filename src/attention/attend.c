/* SPDX-License-Identifier: MIT */
/* attend.c - attention of one layer in five steps. Each is a function that hands data to the next:
 *
 *   append     stores new keys and values
 *   parts      makes a list of parts from the plan row (pure: reads the store, changes nothing)
 *   attend     attends each part where it lies and joins them by their log-sum-exp
 *   score      computes from the parts the scores that the plan wants
 *   settle     calls the policy's hooks, evicts and merges, prepacks or quantises */
#include "attend.h"

#include <stdlib.h>

#include "bank/store_kivi.h"
#include "bank/store_planes.h"
#include "base/err.h"
#include "base/ints.h"
#include "context_split.h"
#include "parts.h"
#include "prefill.h"
#include "prompt_rounds.h"
#include "reader.h"
#include "reads.h"
#include "scoring/scores.h"
#include "scoring_table.h"

static const struct reader *reader_of(const struct attention *a, int l)
{
    return a->layer[l]->r;
}

/* ---- append ---- */

/* Keeps the last n slots of each head; all heads hold the same number. */
static int keep_last(struct attention *a, struct store *st, int n)
{
    const int gone = st->n[0] - n;
    int *keep, err = CB_OK;

    if (gone <= 0)
        return CB_OK;
    TRY(cb_device_wait(a->dev)); /* the host moves rows that ops have stored */
    if (!(keep = cb_calloc((size_t)n + 1, sizeof *keep)))
        return CB_ENOMEM;
    for (int i = 0; i < n; i++)
        keep[i] = gone + i;
    for (int h = 0; !err && h < st->n_kv; h++)
        err = cb_store_keep(st, h, keep, n);
    free(keep);
    return err;
}

/* Slots that lie outside a window, which includes the next token, are dropped, as no later query
 * sees them. All slots that are left can then be read in any order. Within a prompt whole splits go
 * that the chunk's first token does not see, so that sums do not depend on the chunks. Where a
 * method asks for the window, it drops slots itself at the end. Slots that are quantised are
 * dropped with prompts alone. A feed that repeats the prompt leaves the slots as they are, and so
 * does a prompt of which other layers are still to read them. */
static int evict_outside_window(struct attention *a, int l, int at_end)
{
    struct store *st = &a->bank->store[l];
    const int window = cb_attend_forgets(a, l);
    int full = 0;

    if (!window || cb_attend_chunk(a, l) || a->repeated.to || !st->any_order ||
        (a->model->layer[l].lends && !a->bank->decoding && !at_end) ||
        (st->kivi && a->bank->decoding))
        return CB_OK;
    if (!a->bank->decoding && !at_end)
        cb_bank_note_peak(a->bank, l);
    if (!a->bank->decoding)
        return a->plan[l].window ? CB_OK
                                 : keep_last(a, st, cb_attend_left(st->n[0], window - 1, at_end));
    for (int h = 0; h < st->n_kv; h++)
        full |= st->n[h] >= window;
    if (full)
        TRY(cb_device_wait(a->dev)); /* the host moves rows */
    for (int h = 0; h < st->n_kv; h++)
        while (st->n[h] >= window)
            TRY(cb_store_drop(st, h, 0));
    return CB_OK;
}

/* Before the tokens of c are added. A layer that attends within chunks is emptied where one begins;
 * feeds end there (cb_attention_max_step). */
static int make_room(struct attention *a, const struct chunk *c)
{
    const int chunk = cb_attend_chunk(a, c->l);

    if (chunk && c->pos0 % chunk == 0)
        return keep_last(a, &a->bank->store[c->l], 0);
    return evict_outside_window(a, c->l, 0);
}

static int store_tokens(struct attention *a, const struct chunk *c)
{
    struct store *st = &a->bank->store[c->l];
    int there;

    TRY(make_room(a, c));
    if (!a->bank->decoding || cb_reader_has(a, c->l, READ_SORTED))
        cb_store_sort(st);
    there = cb_context_split_append(a, c);
    TRY(there);
    if (!there)
        TRY(cb_store_append(st, a->dev, c->k, c->v, c->stride, c->n, c->pos0));
    return there || !c->pos ? CB_OK : cb_store_set_pos(st, c->pos, c->n);
}

static int append(struct attention *a, const struct chunk *c)
{
    if (a->model->layer[c->l].kv_back)
        return a->bank->decoding ? cb_draft_rows_lend(a, c, store_tokens) : CB_OK;
    TRY(cb_draft_rows_note(a, c));
    TRY(store_tokens(a, c));
    if (cb_prefill_is(a) && a->prompt.how->stored)
        a->prompt.how->stored(a, c);
    return reader_of(a, c->l)->stored ? reader_of(a, c->l)->stored(a, c) : CB_OK;
}

int cb_attend_take_back(struct attention *a, int n)
{
    return cb_draft_rows_cut(a, n, store_tokens);
}

/* ---- parts ---- */

/* Buffer for the logits of a decoded token; NULL: nobody wants them. */
static float *logits_left(struct attention *a, int l)
{
    return a->bank->decoding && cb_scores_wanted(a, l, 0) ? cb_scores_logits(a, l) : NULL;
}

/* The form of prefill comes first, since it is asked only for what a prompt reads. */
static int make_parts(struct attention *a, const struct chunk *c, float *logit)
{
    const struct reader *r = reader_of(a, c->l);
    int made = 0;

    cb_parts_clear(a);
    if (cb_prefill_is(a))
        made = a->prompt.how->parts(a, c);
    if (!made && r->parts)
        made = r->parts(a, c);
    TRY(made ? min_int(made, 0) : cb_parts_whole(a, c, logit));
    if (!cb_scoring_reads_parts(a, c->l))
        cb_parts_deal(a, c);
    return CB_OK;
}

/* ---- score ---- */

/* Scores of one decoded token, for the policy. */
static void step_scores(struct attention *a, const struct chunk *c, const float *lse, int left)
{
    const struct store *st = &a->bank->store[c->l];

    a->has_scores = cb_scores_step(a, c, lse, left, &a->scores);
    for (int h = 0; !left && !cb_reader_has(a, c->l, READ_BY_PARTS) && h < st->n_kv;
         h++) /* keys, read again */
        a->bank->read_bytes += cb_store_bytes_of(st, h, st->n[h]) / (uint64_t)cb_store_sides(st);
}

static int attended(struct attention *a, const struct chunk *c, const float *lse)
{
    const struct reader *r = reader_of(a, c->l);
    return r->attended ? r->attended(a, c, lse) : CB_OK;
}

/* Applies the leader's new keys, values and queries to a, up to the end of a's own prompt. */
static int follow(struct attention *a, const struct chunk *led, const float *lse)
{
    const int end = a->bank->n_seen + a->bank->n_feed;
    struct chunk c = *led;

    a->has_scores = 0;
    c.n = min_int(led->n, end - led->pos0);
    c.pos_end = end;
    if (c.n < 1)
        return CB_OK;
    TRY(store_tokens(a, &c));
    TRY(attended(a, &c, lse));
    return cb_scores_wanted(a, c.l, 1) ? cb_scoring_chunk(a, &c, a->leader, lse) : CB_OK;
}

static int score(struct attention *a, const struct chunk *c, const float *lse, const float *logit)
{
    const int decoding = a->bank->decoding;

    if (a->repeated.to)
        return cb_scoring_repeated(a, c);
    if (cb_prefill_is(a) && a->prompt.how->attended)
        a->prompt.how->attended(a, c);
    a->has_scores = 0;
    for (int i = 0; i < a->n_follower; i++)
        TRY(follow(a->follower[i], c, lse));
    TRY(attended(a, c, lse));
    if (!cb_scores_wanted(a, c->l, !decoding))
        return CB_OK;
    if (!decoding)
        return cb_scoring_chunk(a, c, a, lse);
    step_scores(a, c, lse, logit != NULL);
    return CB_OK;
}

/* ---- settle ---- */

/* The scores of a prompt's queries since its begin, or since the last drop, go to the policy. */
static void prompt_scores(struct attention *a, int l)
{
    if (!cb_scores_wanted(a, l, 1))
        return;
    cb_scoring_prompt(a, l, &a->scores);
    a->has_scores = 1;
}

static int hand_over(struct attention *a, int l)
{
    struct policy *p = a->policy;
    const int i = cb_policy_index(p, l);

    if (a->has_scores && a->plan[l].score.sums)
        cb_scores_sum(a, l, &a->scores);
    return a->has_scores && p->m->observe ? p->m->observe(p, i, p->layer_state[i], &a->scores)
                                          : CB_OK;
}

/* The policy drops slots. */
static int compact(struct attention *a, int l, const struct scores *sc)
{
    struct policy *p = a->policy;
    const int i = cb_policy_index(p, l);

    if (!cb_attend_evicts(a, l))
        return CB_OK;
    cb_evict_begin(a->eviction, l, !a->bank->decoding);
    TRY(p->m->compact(p, i, p->layer_state[i], sc, a->eviction));
    return cb_evict_apply(a->eviction);
}

/* Does the host read or move rows of a layer once its tokens have attended? */
static int host_settles(const struct attention *a, int l)
{
    const struct store *st = &a->bank->store[l];

    return cb_attend_evicts(a, l) || reader_of(a, l)->settle || cb_context_split_deals(a, l) ||
           (!a->bank->decoding && cb_attend_forgets(a, l)) || st->kivi ||
           cb_store_prepack_due(st) > 0 || cb_store_sketch_reads(st);
}

/* Prepacks whole blocks of the slots that are left, or quantises the oldest; but not while the
 * method waits for the next token's scores to decide what to drop. */
static int settle(struct attention *a, int l, const struct scores *sc)
{
    struct store *st = &a->bank->store[l];
    const int i = cb_policy_index(a->policy, l);
    int waits;

    if (host_settles(a, l))
        TRY(cb_device_wait(a->dev)); /* it reads the rows that ops have stored */
    TRY(compact(a, l, sc));
    if (reader_of(a, l)->settle)
        TRY(reader_of(a, l)->settle(a, l));
    TRY(cb_context_split_settle(a, l));
    if (!a->bank->decoding)
        TRY(evict_outside_window(a, l, 1));
    waits = i >= 0 && a->policy->watch[i] == WHEN_STEP;
    if (!waits)
        TRY(cb_store_prepack(st));
    TRY(cb_store_sketch(st, a->dev));
    if (!a->bank->decoding) {
        cb_bank_note_peak(a->bank, l); /* with its sketches */
        cb_store_huge_pages(st);
    }
    cb_planes_advance(st, a->dev);
    return st->kivi && !waits ? cb_kivi_advance(st, a->dev) : CB_OK;
}

/* Within a prompt: after every drop_every tokens. */
static int drop_early(struct attention *a, const struct chunk *c)
{
    const int l = c->l, every = cb_prefill_drops_every(a, l), end = c->pos0 + c->n;

    if (a->bank->decoding || !every || (end - a->bank->n_seen) % every || end == c->pos_end)
        return CB_OK;
    cb_bank_note_peak(a->bank, l);
    prompt_scores(a, l);
    TRY(hand_over(a, l));
    TRY(cb_device_wait(a->dev));
    return compact(a, l, a->has_scores ? &a->scores : NULL);
}

/* Everything before the device attends */
static int prepare(struct attention_call *call)
{
    struct attention *a = call->a;
    const struct chunk *c = &call->c;

    TRY(append(a, c));
    call->wants_lse = cb_scores_wanted(a, c->l, !a->bank->decoding) || a->n_follower ||
                      cb_reader_has(a, c->l, READ_LSE);
    call->logit = logits_left(a, c->l);
    TRY(make_parts(a, c, call->logit));
    if (a->cold_pages)
        cb_parts_prefetch(a, c->l);
    return CB_OK;
}

int cb_attend(struct attention_call *call, int n)
{
    for (int i = 0; i < n; i++)
        TRY(prepare(&call[i]));
    TRY(cb_context_split_goes_round(call->a, call->c.l) ? cb_prompt_rounds(call)
                                                        : cb_parts_attend(call, n));
    for (int i = 0; i < n; i++) {
        struct attention *a = call[i].a;
        const struct chunk *c = &call[i].c;
        if (a->watch && a->bank->decoding) {
            TRY(cb_device_wait(a->dev)); /* the host reads lists that ops have made */
            a->watch->look(a->watch->arg, a, c->l);
        }
        TRY(score(a, c, call[i].lse, call[i].logit));
        TRY(drop_early(a, c));
    }
    return CB_OK;
}

int cb_attend_reads_all(const struct attention *a, int l)
{
    const struct layer *y = &a->model->layer[l];
    const int looks = cb_scores_wanted(a, l, 1) || a->by_repeat || a->repeats || a->repeated.to;

    return cb_reader_has(a, l, READ_PLAIN) && !cb_prefill_is(a) && !looks && !a->n_follower &&
           !a->leader && !a->split && !cb_attend_forgets(a, l) && !cb_prefill_drops_every(a, l) &&
           !a->plan[l].window && !y->kv_back && !y->sinks;
}

int cb_attend_store(const struct attention_call *call)
{
    TRY(append(call->a, &call->c));
    call->a->has_scores = 0;
    cb_parts_count_all(call);
    return CB_OK;
}

/* Does layer l wait for the end of a prompt? */
static int is_late(const struct attention *a, int l)
{
    return a->plan[l].late || a->model->layer[l].lends;
}

static int settle_late(struct attention *a)
{
    for (int l = 0; l < a->bank->n_layer; l++) {
        struct scores s;
        if (!is_late(a, l))
            continue;
        if (a->repeats)
            cb_scoring_prompt(a, l, &s);
        TRY(settle(a, l, a->repeats ? &s : NULL));
    }
    return CB_OK;
}

int cb_attend_repeated(struct attention *a)
{
    const int err = settle_late(a);

    a->repeats = 0;
    return err;
}

int cb_attend_end(struct attention *a, int l)
{
    const int prompt = !a->bank->decoding, last = l == a->bank->n_layer - 1;

    if (a->repeated.to) {
        cb_bank_note_peak(a->bank, l);
        return CB_OK;
    }
    for (int i = 0; i < a->n_follower; i++)
        TRY(cb_attend_end(a->follower[i], l));
    if (prompt || last)
        cb_bank_note_peak(a->bank, l);
    if (!a->bank->store[l].n_kv) /* nothing has attended */
        a->has_scores = 0;
    if (prompt && cb_scoring_reads(a, l))
        TRY(cb_device_wait(a->dev));
    if (prompt && cb_context_split_works(a) && cb_scores_wanted(a, l, 1))
        TRY(cb_scoring_share(a, l));
    if (prompt)
        prompt_scores(a, l);
    TRY(hand_over(a, l));
    if (!prompt && reader_of(a, l)->ahead)
        reader_of(a, l)->ahead(a, l); /* before somebody waits for the layer */
    if (a->bank->store[l].n_kv && (!prompt || !is_late(a, l)))
        TRY(settle(a, l, a->has_scores ? &a->scores : NULL));
    return prompt && last && !a->repeats ? settle_late(a) : CB_OK;
}
