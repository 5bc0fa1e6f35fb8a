/* SPDX-License-Identifier: MIT */
/* attend_open.c - a session's attention between feeds: opened, measured, cut, cleared; and what its
 * plan allows: which layers forget and prepack, and how far the timeline can be cut. */
#include "attend.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/ints.h"
#include "context_split.h"
#include "parts.h"
#include "prefill.h"
#include "prefill_table.h"
#include "reader_table.h"
#include "scoring/scores.h"
#include "scoring_table.h"
#include "state_memory.h"
#include "token_pruning.h"
#include "turned_queries.h"

/* Has layer l's reader these traits, where a prompt leaves them to it? A form of prefill may copy
 * rows of the layers that the policy acts on. */
static int has(const struct attention *a, int l, unsigned traits)
{
    const int copied =
        cb_policy_index(a->policy, l) >= 0 && cb_prefill_is(a) && a->prompt.how->copies;
    return cb_reader_has(a, l, traits) && !copied;
}

int cb_attend_shares_rows(const struct attention *a, int l)
{
    return !a->bank->store[l].n_kv || has(a, l, READ_SHARES) || has(a, l, READ_STATE);
}

int cb_attend_evicts(const struct attention *a, int l)
{
    return a->policy->m->compact && cb_policy_index(a->policy, l) >= 0;
}

int cb_attend_left(int n, int keep, int at_end)
{
    const int gone = n > keep ? n - keep : 0;
    return n - (at_end ? gone : gone - gone % KV_SPLIT);
}

int cb_attend_forgets(const struct attention *a, int l)
{
    const struct layer_plan *p = &a->plan[l];
    const int alone = (has(a, l, READ_PLAIN) || has(a, l, READ_WINDOW)) &&
                      p->score.when == WHEN_NEVER && !cb_attend_evicts(a, l);

    return p->window ? p->window : alone ? a->model->layer[l].window : 0;
}

/* May the rows of layer l lie in any order? If the policy wants scores after each step, they must
 * come from the logits that attention leaves. */
static int any_order(const struct attention *a, int l)
{
    return has(a, l, READ_ANY_ORDER) && (!a->model->layer[l].window || cb_attend_forgets(a, l)) &&
           (!(a->plan[l].score.when & WHEN_STEP) || cb_scores_logits(a, l));
}

/* May the rows of layer l be prepacked? If the policy drops tokens, rows must also be allowed in
 * any order. */
static int may_prepack(const struct attention *a, int l)
{
    return has(a, l, READ_PREPACKS) && (!cb_attend_evicts(a, l) || any_order(a, l));
}

/* Does the policy leave all rows as they are, with readers of these traits alone? */
static int keeps_rows(const struct attention *a, unsigned traits)
{
    const struct method *m = a->policy->m;
    int keeps = !m->compact && !m->observe && !cb_prefill_is(a);

    for (int l = 0; l < a->bank->n_layer; l++)
        keeps &= has(a, l, traits) && !a->plan[l].window && a->plan[l].score.when == WHEN_NEVER;
    return keeps;
}

int cb_attention_keeps_rows(const struct attention *a)
{
    return keeps_rows(a, READ_SHARES);
}

/* Layers that read an earlier layer's keys and values read all of them, so these must be there:
 * policies know nothing of readers besides the layer itself. And policies know one shape of the
 * heads. */
static int check_layers(const struct attention *a)
{
    const struct method *m = a->policy->m;

    if (a->model->hp.heads_differ && !keeps_rows(a, READ_PLAIN))
        return cb_fail(CB_EUNSUPPORTED,
                       "policy %s: the model's layers have different KV heads, which goes with "
                       "policy full and dense prompts alone",
                       m->name);
    return !a->model->hp.n_shared_kv || keeps_rows(a, READ_SHARES)
               ? CB_OK
               : cb_fail(CB_EUNSUPPORTED,
                         "policy %s: the last %d layers of the model read the keys and values of "
                         "earlier ones, which goes with dense prompts and policies that leave all "
                         "of them in place (full, sieve, quest, omnikv) alone",
                         m->name, a->model->hp.n_shared_kv);
}

static int check_planes(const struct attention *a)
{
    return cb_bank_in_planes(a->bank) && !(a->traits & READ_PLANES)
               ? cb_policy_refuse(a->policy, "not with keys of type planes, of which it searches "
                                             "none; policy sieve does")
               : CB_OK;
}

/* Keys that are normed with weights after their rotation are not those of another position once
 * they are rotated further. */
static int check_turns(const struct attention *a)
{
    const int late = a->model->arch->has & NORMS_ROTATED;

    for (int l = 0; late && l < a->bank->n_layer; l++)
        if (a->plan[l].rolling || a->plan[l].far.block || a->plan[l].score.future)
            return cb_fail(CB_EUNSUPPORTED,
                           "policy %s: rotates stored keys or queries to other positions, which "
                           "the model has normed after their rotation",
                           a->policy->m->name);
    return CB_OK;
}

int cb_attention_open(struct attention *a, const char *prefill)
{
    const struct method *m = a->policy->m;

    a->plan = a->policy->row;
    TRY(cb_readers_assign(a));
    TRY(cb_prefill_open(a, prefill));
    TRY(check_layers(a));
    TRY(check_planes(a));
    TRY(check_turns(a));
    TRY(cb_parts_open(a));
    TRY(cb_turned_queries_open(a));
    TRY(cb_scorings_open(a));
    TRY(cb_token_pruning_open(a));
    TRY(cb_readers_open(a));
    for (int l = 0; l < a->bank->n_layer; l++) {
        if (!a->bank->store[l].n_kv)
            continue;
        a->bank->store[l].any_order = any_order(a, l);
        if (may_prepack(a, l))
            cb_store_may_prepack(&a->bank->store[l], a->dev);
    }
    if (!m->compact)
        return CB_OK;
    return cb_evict_new(a->bank, m->name, m->merges ? a->policy->slot_floats : -1, &a->eviction);
}

void cb_attention_close(struct attention *a)
{
    cb_readers_close(a);
    cb_prefill_close(a);
    cb_parts_close(a);
    cb_state_free(a->turned);
    cb_scorings_close(a);
    free(a->pass);
    cb_draft_rows_close(a);
    cb_context_split_close(a);
    cb_evict_free(a->eviction);
}

size_t cb_attention_bytes(const struct attention *a, int n_feed, int n_most, int n_kept)
{
    size_t sum = a->policy->state_bytes + a->policy->m->layer_bytes * (size_t)a->bank->n_layer +
                 cb_state_bytes(a->prompt.x) + cb_state_bytes(a->parts) +
                 cb_state_bytes(a->turned) + cb_scorings_bytes(a, n_most) +
                 (a->pass ? (size_t)n_feed * sizeof *a->pass : 0) + cb_context_split_bytes(a) +
                 cb_draft_rows_bytes(a);

    for (int i = 0; i < a->n_reading; i++) {
        const struct reading *x = &a->reading[i];
        sum += x->r->work_bytes ? x->r->work_bytes(a, x->x, n_feed, n_most)
                                : cb_state_work(x->x, n_most);
    }
    return sum + (a->eviction ? cb_evict_bytes(a->eviction, n_most, n_kept) : 0);
}

void cb_attention_clear(struct attention *a)
{
    cb_policy_clear(a->policy);
    for (int i = 0; i < a->n_reading; i++)
        if (a->reading[i].r->clear)
            a->reading[i].r->clear(a, a->reading[i].x);
    cb_draft_rows_end(a);
    a->repeats = 0;
    a->repeated = (struct piece){ 0 };
}

/* Has a layer dropped slots after position n? A layer with a window drops a slot before it adds
 * the next one, so a drop at n counts too. */
static int dropped_behind(const struct attention *a, int n)
{
    for (int l = 0; l < a->bank->n_layer; l++) {
        const int at = cb_reader_has(a, l, READ_RESUMES) ? 0 : a->bank->store[l].dropped_at;
        if (cb_draft_rows_has(a, l, n))
            continue;
        if (at > n || (at == n && at > 0 && cb_attend_forgets(a, l)))
            return 1;
    }
    return 0;
}

static int remembers_prompt(const struct policy *p)
{
    for (int l = 0; l < p->sh.n_layer; l++)
        for (size_t i = 0; i < p->m->layer_bytes; i++)
            if (((const unsigned char *)p->layer_state[l])[i])
                return 1;
    return 0;
}

const char *cb_attention_uncut(const struct attention *a, int n)
{
    const char *why = NULL;

    if (cb_policy_remembers(a->policy))
        return "it has scored later tokens";
    if (dropped_behind(a, n))
        return "it has dropped tokens since";
    for (int i = 0; !why && i < a->n_reading; i++)
        if (a->reading[i].r->uncut)
            why = a->reading[i].r->uncut(a, a->reading[i].x, n);
    if (!why && n < a->bank->prompt_end && remembers_prompt(a->policy))
        return "its budget is of the whole prompt";
    return why;
}

const char *cb_attention_undraftable(const struct attention *a)
{
    if (a->policy->m->compact || a->policy->m->observe)
        return "it measures, drops or merges tokens as they come";
    for (int i = 0; i < a->n_reading; i++)
        if (a->reading[i].r->undraftable)
            return a->reading[i].r->undraftable;
    if (a->model->hp.n_shared_kv && !keeps_rows(a, READ_PLAIN))
        return "its layers read what another layer computed for the same token";
    if (cb_bank_has_kivi(a->bank))
        return "quantised tokens cannot be taken back";
    for (int l = 0; l < a->bank->n_layer; l++) {
        if (a->plan[l].window)
            return "a layer keeps a window of tokens only";
        if (a->model->layer[l].ngrams)
            return "a layer remembers n-grams of tokens";
    }
    return NULL;
}

int cb_attention_max_draft(const struct attention *a)
{
    int most = a->chunk;

    for (int i = 0; i < a->n_reading; i++)
        if (a->reading[i].r->max_step)
            most = min_int(most, a->reading[i].r->max_step);
    return most;
}

/* A layer that attends within chunks drops all of one where the next one begins. */
int cb_attention_draft_room(const struct attention *a, int at)
{
    int room = INT32_MAX;

    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_attend_chunk(a, l))
            room = min_int(room, cb_attend_chunk(a, l) - at % cb_attend_chunk(a, l));
    return room;
}

/* How many slots layer l keeps where a token's row takes the place of another */
static int replaces(const struct attention *a, int l)
{
    return a->bank->store[l].any_order && !cb_attend_chunk(a, l) ? cb_attend_forgets(a, l) : 0;
}

int cb_attention_fit_draft(struct attention *a, int n)
{
    for (int i = 0; i < a->n_reading; i++)
        if (a->reading[i].r->fit_draft)
            TRY(a->reading[i].r->fit_draft(a, a->reading[i].x, n));
    TRY(cb_draft_rows_fit(a, n, replaces));
    a->max_draft = max_int(a->max_draft, n);
    return CB_OK;
}

void cb_attention_cut(struct attention *a, int n)
{
    for (int i = 0; i < a->n_reading; i++)
        if (a->reading[i].r->cut)
            a->reading[i].r->cut(a, a->reading[i].x, n);
    cb_bank_cut(a->bank, n);
}

int cb_attention_resume(struct attention *a, int n)
{
    for (int i = 0; i < a->n_reading; i++)
        if (a->reading[i].r->resume)
            TRY(a->reading[i].r->resume(a, a->reading[i].x, n));
    return CB_OK;
}

/* Have all readers of layer l this trait, of its rows and of its state? */
static int all_have(const struct attention *a, int l, unsigned trait)
{
    return cb_reader_has(a, l, trait) && (!a->beside[l] || a->beside[l]->r->traits & trait);
}

/* Do prompts attend as the layers' readers have it, which have this trait? */
static int prompts_have(const struct attention *a, unsigned trait)
{
    if (cb_prefill_is(a) || a->by_repeat || cb_attention_narrows(a) || a->model->hp.n_shared_kv)
        return 0;
    for (int l = 0; l < a->bank->n_layer; l++)
        if (a->plan[l].window || a->plan[l].prompt_window || a->plan[l].drop_every ||
            !all_have(a, l, trait))
            return 0;
    return 1;
}

int cb_attention_is_dense(const struct attention *a)
{
    return prompts_have(a, READ_DENSE);
}

/* 1: nothing but windows of the model's own tells one prompt from several */
static int joins(const struct attention *a)
{
    const struct method *m = a->policy->m;

    /* what a trained selector names for a query does not depend on how prompts are fed */
    if (!prompts_have(a, a->policy->sh.selects ? READ_EXTENDS : READ_DENSE) || m->compact ||
        m->observe || m->layer_bytes || a->policy->state_bytes)
        return 0;
    for (int l = 0; l < a->bank->n_layer; l++)
        if (a->plan[l].window || !all_have(a, l, READ_EXTENDS) ||
            a->plan[l].score.when != WHEN_NEVER)
            return 0;
    return 1;
}

static int forgets(const struct attention *a)
{
    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_attend_forgets(a, l))
            return 1;
    return 0;
}

int cb_attention_extends(const struct attention *a)
{
    return joins(a) && !forgets(a);
}

int cb_attention_only_forks(const struct attention *a)
{
    return joins(a) && forgets(a);
}

int cb_attention_has(const struct attention *a, unsigned traits)
{
    return (a->traits & traits) != 0;
}

int cb_attend_chunk(const struct attention *a, int l)
{
    return a->model->hp.chunked ? a->model->layer[l].window : 0;
}

int cb_attention_max_step(const struct attention *a, int l, int i)
{
    const int every = cb_prefill_drops_every(a, l), chunk = cb_attend_chunk(a, l);
    const struct reading *both[] = { a->layer[l], a->beside[l] };
    int room = cb_prefill_is(a) ? a->prompt.how->room(a, i) : INT32_MAX;

    for (int k = 0; k < 2; k++)
        if (both[k] && both[k]->r->room)
            room = min_int(room, both[k]->r->room(a, l, i));
    room = min_int(room, every ? every - i % every : INT32_MAX);
    room = min_int(room, cb_context_split_step(a, i));
    return chunk ? min_int(room, chunk - (a->bank->n_seen + i) % chunk) : room;
}

int cb_attend_drops_every(const struct attention *a, int l)
{
    return cb_prefill_drops_every(a, l);
}
