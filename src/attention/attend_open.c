/* SPDX-License-Identifier: MIT */
/* attend_open.c - a session's attention between feeds: opened, measured, cut, cleared; and what its
 * plan allows: which layers forget, prepack, go back or go on. */
#include "attend.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/ints.h"
#include "parts.h"
#include "passing.h"
#include "prefill/sparse_prefill.h"
#include "readers/ceiling.h"
#include "readers/chooser.h"
#include "readers/cross_layer.h"
#include "readers/far_blocks.h"
#include "readers/own_slots.h"
#include "readers/pairs.h"
#include "readers/partial_keys.h"
#include "readers/ranks.h"
#include "readers/rolling.h"
#include "readers/sketch_choice.h"
#include "readers/skew.h"
#include "scoring/rehearsal_scores.h"
#include "scoring/scores.h"

/* Is attention the only reader of layer l, and does every generated token read all of it? */
static int reads_all(const struct attention *a, int l)
{
    if (cb_policy_index(a->policy, l) < 0)
        return 1;
    return !a->cross_layer && !cb_sparse_prefill_copies(a) && a->plan[l].reads < 0 &&
           !cb_sketch_choice_is(a, l) && !cb_own_slots_is(a, l) && !cb_far_is(a, l);
}

static int scores_steps(const struct attention *a, int l)
{
    return a->plan[l].score.when == WHEN_ALWAYS || a->plan[l].score.when == WHEN_STEP;
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
    const int alone = reads_all(a, l) && !cb_plan_chooses(p) && !p->rolling && !p->prompt_window &&
                      p->score.when == WHEN_NEVER && !cb_attend_evicts(a, l);

    return p->window ? p->window : alone ? a->model->layer[l].window : 0;
}

/* May the rows of layer l lie in any order? If the policy wants scores after each step, they must
 * come from the logits that attention leaves behind. */
static int any_order(const struct attention *a, int l)
{
    return reads_all(a, l) && !cb_plan_chooses(&a->plan[l]) &&
           (!a->model->layer[l].window || cb_attend_forgets(a, l)) &&
           (!scores_steps(a, l) || cb_scores_logits(a, l));
}

/* May the rows of layer l be prepacked? If the policy drops tokens, rows must also be allowed in
 * any order. A window of several choosing queries reads the keys once more, so it rules prepacking
 * out; and rows of pairs are still to be merged. */
static int may_prepack(const struct attention *a, int l)
{
    if (a->plan[l].choice.window > 1 || cb_pairs_is(a, l))
        return 0;
    return cb_attend_evicts(a, l) ? any_order(a, l) : reads_all(a, l);
}

/* Layers that read an earlier layer's keys and values read all of them: policies know nothing of
 * readers besides the layer itself. */
static int check_shared(const struct attention *a)
{
    const struct method *m = a->policy->m;
    int plain = !m->compact && !m->observe && !cb_sparse_prefill_is(a) && !a->blocks;

    for (int l = 0; l < a->bank->n_layer; l++)
        plain &= reads_all(a, l) && !cb_plan_chooses(&a->plan[l]) && !a->plan[l].cross.from &&
                 !a->plan[l].rolling && !a->plan[l].window && !a->plan[l].prompt_window &&
                 a->plan[l].score.when == WHEN_NEVER && !cb_pairs_is(a, l);
    return plain || !a->model->hp.n_shared_kv
               ? CB_OK
               : cb_fail(CB_EUNSUPPORTED,
                         "policy %s: the last %d layers of the model read the keys and values of "
                         "earlier ones, which goes with policy full and dense prompts alone",
                         m->name, a->model->hp.n_shared_kv);
}

int cb_attention_open(struct attention *a, const char *prefill)
{
    const struct method *m = a->policy->m;

    a->plan = a->policy->row;
    TRY(cb_sparse_prefill_open(a, prefill));
    TRY(check_shared(a));
    TRY(cb_parts_open(a));
    TRY(cb_rolling_open(a));
    TRY(cb_ranks_open(a));
    TRY(cb_ceiling_open(a));
    TRY(cb_far_open(a));
    TRY(cb_own_slots_open(a));
    TRY(cb_scores_open(a));
    TRY(cb_chooser_open(a));
    TRY(cb_sketch_choice_open(a));
    TRY(cb_partial_keys_open(a));
    TRY(cb_skew_open(a));
    TRY(cb_cross_layer_open(a));
    TRY(cb_rehearsal_open(a));
    TRY(cb_passing_open(a));
    TRY(cb_pairs_open(a));
    for (int l = 0; l < a->bank->n_layer; l++) {
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
    cb_sparse_prefill_close(a);
    cb_parts_close(a);
    cb_rolling_close(a);
    cb_ranks_close(a);
    cb_ceiling_close(a);
    cb_far_close(a);
    cb_own_slots_close(a);
    cb_scores_close(a);
    cb_chooser_close(a);
    cb_sketch_choice_close(a);
    cb_partial_keys_close(a);
    cb_skew_close(a);
    cb_cross_layer_close(a);
    cb_rehearsal_close(a);
    cb_passing_close(a);
    cb_pairs_close(a);
    cb_evict_free(a->eviction);
}

size_t cb_attention_bytes(const struct attention *a, int n_feed, int n_most, int n_kept)
{
    return a->policy->state_bytes + a->policy->m->layer_bytes * (size_t)a->bank->n_layer +
           cb_sparse_prefill_bytes(a) + cb_parts_bytes(a) + cb_rolling_bytes(a) +
           cb_ranks_bytes(a, n_most) + cb_ceiling_bytes(a) + cb_far_bytes(a, n_most) +
           cb_own_slots_bytes(a, n_most) + cb_scores_bytes(a, n_most) +
           cb_chooser_bytes(a, n_most) + cb_sketch_choice_bytes(a, n_most) +
           cb_partial_keys_bytes(a, n_most) + cb_skew_bytes(a) +
           cb_cross_layer_bytes(a, n_feed, n_most) + cb_rehearsal_bytes(a) +
           cb_passing_bytes(a, n_feed) + cb_pairs_bytes(a, n_most) +
           (a->eviction ? cb_evict_bytes(a->eviction, n_most, n_kept) : 0);
}

void cb_attention_clear(struct attention *a)
{
    cb_policy_clear(a->policy);
    cb_chooser_clear(a);
    cb_far_clear(a);
    a->rehearses = 0;
    a->repeated = (struct piece){ 0 };
}

/* Has a layer dropped slots behind position n? A layer with a window drops a slot before it adds
 * the next one, so a drop at n counts too. */
static int dropped_behind(const struct attention *a, int n)
{
    for (int l = 0; l < a->bank->n_layer; l++) {
        const int at = a->bank->store[l].dropped_at;
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
    if (cb_policy_remembers(a->policy) || !cb_chooser_can_cut(a))
        return "it has measured the tokens behind";
    if (dropped_behind(a, n))
        return "it has dropped tokens since";
    if (a->cross_layer)
        return "its layers have dropped keys";
    if (!cb_pairs_can_cut(a, n))
        return "it has merged tokens since";
    if (n < a->bank->prompt_end && remembers_prompt(a->policy))
        return "its budget is of the whole prompt";
    if (cb_skew_is_of_more(a, n))
        return "its keys are skewed by all of the first prompt";
    return NULL;
}

const char *cb_attention_undraftable(const struct attention *a)
{
    if (a->policy->m->compact || a->policy->m->observe || a->far || a->pairs)
        return "it measures, drops or merges tokens as they come";
    if (a->cross_layer || a->model->hp.n_shared_kv)
        return "its layers read what another layer computed for the same token";
    if (!cb_chooser_can_cut(a))
        return "it keeps a window of queries";
    if (cb_bank_has_kivi(a->bank))
        return "quantised tokens cannot be taken back";
    for (int l = 0; l < a->bank->n_layer; l++) {
        if (cb_attend_forgets(a, l))
            return "a layer keeps a window of tokens only";
    }
    return NULL;
}

int cb_attention_together(const struct attention *a)
{
    return a->chooser ? min_int(a->chunk, CHOICES) : a->chunk;
}

void cb_attention_cut(struct attention *a, int n)
{
    cb_chooser_cut(a, n);
    cb_bank_cut(a->bank, n);
}

int cb_attention_is_dense(const struct attention *a)
{
    if (cb_sparse_prefill_is(a) || a->rehearsal_scores || cb_passing_is(a) ||
        a->model->hp.n_shared_kv)
        return 0;
    for (int l = 0; l < a->bank->n_layer; l++)
        if (a->plan[l].window || a->plan[l].prompt_window || a->plan[l].drop_every ||
            a->plan[l].cross.from || cb_far_is(a, l))
            return 0;
    return 1;
}

int cb_attention_extends(const struct attention *a)
{
    const struct method *m = a->policy->m;

    if (!cb_attention_is_dense(a) || m->compact || m->observe || m->layer_bytes ||
        a->policy->state_bytes || a->pairs)
        return 0;
    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_attend_forgets(a, l) || a->plan[l].choice.window > 1 || cb_partial_keys_is(a, l) ||
            a->plan[l].score.when != WHEN_NEVER)
            return 0;
    return 1;
}

int cb_attend_chunk(const struct attention *a, int l)
{
    return a->model->hp.chunked ? a->model->layer[l].window : 0;
}

int cb_attention_room(const struct attention *a, int l, int i)
{
    const int every = cb_sparse_prefill_drops_every(a, l), chunk = cb_attend_chunk(a, l);
    int room = min_int(cb_sparse_prefill_room(a, i), cb_far_room(a, l, i));

    room = min_int(room, every ? every - i % every : INT32_MAX);
    return chunk ? min_int(room, chunk - (a->bank->n_seen + i) % chunk) : room;
}
