/* SPDX-License-Identifier: MIT */
/* scheduler_admission.c - a job from its order to its slot, and its end. Called by the engine's
 * thread alone. */
#include "scheduler_state.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/session.h"

enum {
    ANSWER_GUESS = 256, /* tokens of an answer without a limit, to share turns by */
    WORTH_COPYING = 256 /* tokens that were read: fewer are read again sooner than they are kept */
};

/* ---- what others see ---- */

static void look_at_slots(struct scheduler *s)
{
    s->stats.reading = s->stats.writing = 0;
    for (int i = 0; i < s->p.slots.n; i++) {
        const struct slot *at = &s->slots.at[i];
        struct slot_view *v = &s->view[i];
        *v = (struct slot_view){ .open = at->session != NULL, .working = at->job != NULL };
        if (!at->session)
            continue;
        v->n_tokens = cb_session_len(at->session);
        v->kv_bytes = cb_slot_bytes(at);
        snprintf(v->policy, sizeof v->policy, "%s", at->policy);
        if (!at->job)
            continue;
        v->state = at->job->state;
        v->n_prompt = at->job->group->order.n;
        v->n_made = at->job->n_made;
        v->read = at->job->read;
        s->stats.reading += v->state == JOB_READS;
        s->stats.writing += v->state == JOB_WRITES;
    }
    s->stats.bank_bytes = cb_pool_bytes(&s->slots);
}

/* ---- the end of a job ---- */

static int reason_index(const char *reason)
{
    return !strcmp(reason, "stop") ? 0 : !strcmp(reason, "length") ? 1 : *reason == 'c' ? 2 : 3;
}

/* Under the lock. The client, if it is still there, frees the group. */
static void end_job(struct scheduler *s, struct job *j)
{
    struct job_group *g = j->group;

    cb_job_publish(j);
    j->state = JOB_ENDED;
    j->times.ended = cb_now_s();
    s->stats.ended[reason_index(j->end.reason)]++;
    s->stats.made_tokens += (uint64_t)j->n_made;
    s->stats.drafted += (uint64_t)j->end.drafts.drafted;
    s->stats.accepted += (uint64_t)j->end.drafts.accepted;
    pthread_cond_broadcast(&g->changed);
    if (--g->n_left == 0)
        cb_group_free(g);
}

/* Takes back drafts that no token of the answer has confirmed. */
static int end_drafts(struct slot *at)
{
    cb_speculation *x = at->drafts;
    int rc = CB_OK;

    if (x) {
        rc = cb_speculation_end(x);
        cb_speculation_get_counts(x, &at->job->end.drafts);
        cb_speculation_free(x);
        at->drafts = NULL;
    }
    return rc;
}

void cb_scheduler_finish(struct scheduler *s, struct slot *at, int trusted)
{
    struct job *j = at->job;

    trusted &= !end_drafts(at);
    cb_session_memory(at->session, &j->end.memory);
    cb_session_prefill_cancel(at->session);
    cb_pool_give(&s->slots, at, trusted);
    s->look = 1;
    pthread_mutex_lock(&s->lock);
    look_at_slots(s); /* who asks after the answer sees it done */
    end_job(s, j);
    pthread_mutex_unlock(&s->lock);
}

void cb_scheduler_fail(struct scheduler *s, struct slot *at, int status)
{
    cb_job_fail(at->job, status);
    cb_scheduler_finish(s, at, 0);
}

/* ---- what comes in ---- */

/* Tenants take turns: a job's turn comes when its tenant has used as much as the others have. */
static void put_in_order(struct scheduler *s, struct job *j)
{
    const struct job_order *o = &j->group->order;
    struct job **at = &s->waiting;
    double *used = &s->used[o->tenant];

    if (*used < s->turn)
        *used = s->turn;
    j->turn = *used;
    *used += o->n + (o->max_tokens < 0 ? ANSWER_GUESS : o->max_tokens);
    while (*at && (*at)->turn <= j->turn)
        at = &(*at)->next;
    j->next = *at;
    *at = j;
}

static int is_idle(const struct scheduler *s)
{
    for (int i = 0; i < s->p.slots.n; i++)
        if (s->slots.at[i].job)
            return 0;
    return !s->waiting && !s->inbox;
}

/* Takes orders; waits if there is no work. 0: the end. */
int cb_scheduler_receive(struct scheduler *s)
{
    struct job *in;
    int go_on;

    pthread_mutex_lock(&s->lock);
    look_at_slots(s);
    while (is_idle(s) && !s->stopping)
        pthread_cond_wait(&s->work, &s->lock);
    go_on = !is_idle(s);
    in = s->inbox;
    s->inbox = NULL;
    pthread_mutex_unlock(&s->lock);
    s->look |= in != NULL;
    for (struct job *next; in; in = next) {
        next = in->next;
        put_in_order(s, in);
    }
    return go_on;
}

static int is_cancelled(struct scheduler *s, const struct job *j)
{
    int yes;

    pthread_mutex_lock(&s->lock);
    yes = j->group->cancelled || s->stopping > 1;
    pthread_mutex_unlock(&s->lock);
    return yes;
}

static void cancel(struct job *j)
{
    cb_job_fail(j, cb_fail(CB_ECANCEL, "the answer was cancelled before it was complete"));
    j->end.reason = "cancelled";
}

void cb_scheduler_drop_cancelled(struct scheduler *s)
{
    struct job **at = &s->waiting, *j;

    for (int i = 0; i < s->p.slots.n; i++) {
        struct slot *slot = &s->slots.at[i];
        if (slot->job && is_cancelled(s, slot->job)) {
            cancel(slot->job);
            cb_scheduler_finish(s, slot, 1);
        }
    }
    while ((j = *at)) {
        if (!is_cancelled(s, j)) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        cancel(j);
        pthread_mutex_lock(&s->lock);
        s->stats.waiting--;
        end_job(s, j);
        pthread_mutex_unlock(&s->lock);
    }
}

/* ---- admission ---- */

/* How many of the largest logits the job's sampler needs; 0 = all */
static int top_of(const struct job_order *o)
{
    return o->logprobs >= 0 || o->grammar || o->n_bias || o->ignore_end
               ? 0
               : cb_sampler_top(&o->sampler);
}

/* done and total are of one feed; the prompt may have two */
static int note_progress(void *arg, int64_t done, int64_t total)
{
    struct job *j = arg;
    const int n = j->group->order.n - j->n_cached;
    const double here = (double)done / (double)total;
    const int from = j->n_cached + j->n_before;

    j->read = (j->n_before + here * (j->n_fed - from)) / n;
    return 0;
}

/* Feeds the job's prompt up to its token n. */
int cb_scheduler_feed(struct job *j, struct slot *at, int n)
{
    const struct cb_prefill how = { .progress = note_progress, .progress_arg = j };
    const int from = cb_session_len(at->session);

    j->n_before = from - j->n_cached;
    j->n_fed = n;
    return n > from
               ? cb_session_prefill_begin(at->session, j->group->order.ids + from, n - from, &how)
               : CB_OK;
}

int cb_scheduler_wants_place(const struct slot *at, int n_read)
{
    return n_read >= WORTH_COPYING &&
           (cb_session_only_forks(at->session) || cb_session_computes_again(at->session));
}

/* Where the first feed ends: at the parting, if enough is read to be worth a copy */
static int first_feed(const struct job_order *o, const struct slot *at, int kept)
{
    return cb_scheduler_wants_place(at, o->parting - kept) ? o->parting : o->n;
}

/* Drafts for an answer, if they are wanted, or its model has a head for them, and its policy can
 * take them back. All answers share the draft model's session, which follows the one that is
 * written alone. */
static int begin_drafts(const struct scheduler *s, struct slot *at)
{
    int err;

    if ((!s->p.draft && !cb_session_draft_mtp(at->session)) || cb_speculation_why_not(at->session))
        return CB_OK;
    TRY(cb_speculation_new(at->session, s->p.draft, &at->drafts));
    err = cb_speculation_set_draft(at->drafts, s->p.drafter);
    return err == CB_EUNSUPPORTED ? CB_OK : err; /* the request's policy is another */
}

static int start(struct scheduler *s, struct job *j, struct slot *at, int kept)
{
    const struct job_order *o = &j->group->order;
    const int left = o->n - kept;
    int rc;

    j->n_cached = kept;
    cb_pool_keep_parting(&s->slots, at);
    rc = cb_scheduler_feed(j, at, first_feed(o, at, kept));
    if (!rc)
        rc = begin_drafts(s, at);
    if (!rc && cb_session_want_top(at->session, top_of(o)))
        rc = cb_session_want_top(at->session, 0); /* no memory for it: tokens take longer */
    pthread_mutex_lock(&s->lock);
    j->state = left ? JOB_READS : JOB_WRITES;
    j->times.admitted = cb_now_s();
    j->times.read = left ? 0 : j->times.admitted;
    j->n_cached = kept;
    s->stats.cached_tokens += (uint64_t)kept;
    s->stats.hit_tokens += (uint64_t)j->n_remembered;
    s->stats.waiting--;
    pthread_cond_broadcast(&j->group->changed);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* 1: the job has left the queue; 0: it waits for a prompt or a slot */
static int admit_one(struct scheduler *s, struct job *j)
{
    struct slot *at;
    int kept, rc = cb_pool_take(&s->slots, j, &at, &kept);

    if (!rc)
        return 0;
    if (rc > 0)
        rc = start(s, j, at, kept);
    else {
        cb_job_fail(j, rc);
        pthread_mutex_lock(&s->lock);
        s->stats.waiting--;
        end_job(s, j);
        pthread_mutex_unlock(&s->lock);
        return 1;
    }
    if (rc)
        cb_scheduler_fail(s, at, rc);
    return 1;
}

/* In the order of turns. A job may be passed by others while it waits for another's prompt, not
 * while it waits for room. */
void cb_scheduler_admit(struct scheduler *s)
{
    struct job **at = &s->waiting;

    if (!s->look)
        return;
    s->look = 0;
    while (*at) {
        struct job *j = *at, *next = j->next;
        const double turn = j->turn;
        if (admit_one(s, j)) {
            *at = next;
            s->turn = turn > s->turn ? turn : s->turn;
        } else if (j->awaits) {
            at = &j->next;
        } else {
            break;
        }
    }
}
