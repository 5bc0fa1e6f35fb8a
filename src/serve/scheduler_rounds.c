/* SPDX-License-Identifier: MIT */
/* scheduler_rounds.c - the engine: one thread that owns all sessions and gives each job its turn.
 * The lock is held for moments only: to take orders, and to hand out what was made. */
#include "scheduler_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/ints.h"
#include "engine/session.h"

enum {
    ANSWER_GUESS = 256, /* tokens of an answer without a limit, to share turns by */
    WORTH_COPYING = 256 /* tokens that were read: fewer are read again sooner than they are kept */
};

const double cb_bucket_s[CB_BUCKETS - 1] = { .001, .002, .005, .01, .02, .05, .1,
                                             .2,   .5,   1,    2,   5,   10 };

/* ---- numbers ---- */

static void count(struct histogram *h, double s)
{
    int i = 0;

    while (i < CB_BUCKETS - 1 && s > cb_bucket_s[i])
        i++;
    h->count[i]++;
    h->n++;
    h->sum += s;
}

static int reason_index(const char *reason)
{
    return !strcmp(reason, "stop") ? 0 : !strcmp(reason, "length") ? 1 : *reason == 'c' ? 2 : 3;
}

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

static void finish_slot(struct scheduler *s, struct slot *at, int trusted)
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

static void fail_slot(struct scheduler *s, struct slot *at, int status)
{
    cb_job_fail(at->job, status);
    finish_slot(s, at, 0);
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
static int receive(struct scheduler *s)
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

static void drop_cancelled(struct scheduler *s)
{
    struct job **at = &s->waiting, *j;

    for (int i = 0; i < s->p.slots.n; i++) {
        struct slot *slot = &s->slots.at[i];
        if (slot->job && is_cancelled(s, slot->job)) {
            cancel(slot->job);
            finish_slot(s, slot, 1);
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
static int feed_to(struct job *j, struct slot *at, int n)
{
    const struct cb_prefill how = { .progress = note_progress, .progress_arg = j };
    const int from = cb_session_len(at->session);

    j->n_before = from - j->n_cached;
    j->n_fed = n;
    return n > from
               ? cb_session_prefill_begin(at->session, j->group->order.ids + from, n - from, &how)
               : CB_OK;
}

/* Is a place in a prompt worth a copy, since the session could not come back to it later, or would
 * compute tokens once more? */
static int wants_places(const struct slot *at)
{
    return cb_session_only_forks(at->session) || cb_session_computes_again(at->session);
}

/* Where the first feed ends: at the parting, if enough is read to be worth a copy */
static int first_feed(const struct job_order *o, const struct slot *at, int kept)
{
    return o->parting - kept >= WORTH_COPYING && wants_places(at) ? o->parting : o->n;
}

/* Drafts for an answer, if they are wanted, or its model has a head for them, and its policy can
 * take them back. All answers share the draft model's session, which follows the one that is
 * written alone. */
static int begin_drafts(const struct scheduler *s, struct slot *at)
{
    if ((!s->p.draft && !cb_session_draft_mtp(at->session)) || cb_speculation_why_not(at->session))
        return CB_OK;
    TRY(cb_speculation_new(at->session, s->p.draft, &at->drafts));
    return cb_speculation_set_draft(at->drafts, s->p.drafter);
}

static int start(struct scheduler *s, struct job *j, struct slot *at, int kept)
{
    const struct job_order *o = &j->group->order;
    const int left = o->n - kept;
    int rc;

    j->n_cached = kept;
    cb_pool_keep_parting(&s->slots, at);
    rc = feed_to(j, at, first_feed(o, at, kept));
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
        fail_slot(s, at, rc);
    return 1;
}

/* In the order of turns. A job may be passed by others while it waits for another's prompt, not
 * while it waits for room. */
static void admit(struct scheduler *s)
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

/* ---- decoding ---- */

static const float *logits_of(const struct slot *at)
{
    return at->drafts ? cb_speculation_logits(at->drafts) : cb_session_logits(at->session);
}

static int is_full(const struct slot *at)
{
    const int len = at->drafts ? cb_speculation_len(at->drafts) : cb_session_len(at->session);

    return len >= cb_session_n_ctx(at->session);
}

/* Samples the next token of each answer; those that continue make the batch. Returns its size. */
static int sample_all(struct scheduler *s)
{
    int n = 0;

    for (int i = 0; i < s->p.slots.n; i++) {
        struct slot *at = &s->slots.at[i];
        struct job *j = at->job;
        if (!j || j->state != JOB_WRITES)
            continue;
        const int first = !j->n_made;
        const int more = cb_job_sample(j, s->p.slots.model, logits_of(at), &s->token[n]);
        if (first) {
            pthread_mutex_lock(&s->lock);
            j->times.first = cb_now_s();
            count(&s->stats.first_token, j->times.first - j->times.ordered);
            pthread_mutex_unlock(&s->lock);
        }
        if (more && is_full(at))
            j->end.reason = "length";
        if (j->end.reason) {
            finish_slot(s, at, 1);
            continue;
        }
        s->batch[n] = at;
        s->session[n++] = at->session;
    }
    return n;
}

/* Before the batch is computed: clients need not wait for it. */
static void hand_out(struct scheduler *s, int n)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < n; i++) {
        cb_job_publish(s->batch[i]->job);
        pthread_cond_broadcast(&s->batch[i]->job->group->changed);
    }
    pthread_mutex_unlock(&s->lock);
}

static void note_batch(struct scheduler *s, int n, double seconds)
{
    uint64_t read = 0;
    struct cb_memory m;

    for (int i = 0; i < n; i++) {
        s->batch[i]->pure = 0;
        cb_session_memory(s->session[i], &m);
        read += m.kv_read_bytes_per_token;
    }
    pthread_mutex_lock(&s->lock);
    s->stats.batches++;
    s->stats.batched += (uint64_t)n;
    s->stats.read_bytes += read;
    s->stats.decode_s += seconds;
    if (s->wrote_at > 0)
        count(&s->stats.between, cb_now_s() - s->wrote_at);
    pthread_mutex_unlock(&s->lock);
}

/* Drafts pay where the weights would be read for one token alone: a batch reads them once anyway.
 */
static int decode_batch(struct scheduler *s, int n)
{
    if (n == 1 && s->batch[0]->drafts)
        return cb_speculation_decode(s->batch[0]->drafts, s->token[0]);
    for (int i = 0; i < n; i++)
        if (s->batch[i]->drafts)
            TRY(cb_speculation_end(s->batch[i]->drafts));
    /* alone, a session may leave out logits that its sampler does not need */
    return n == 1 ? cb_session_decode(s->session[0], s->token[0])
                  : cb_decode_batch(s->session, s->token, n);
}

/* 1: the answer's last token is in its session, although the batch has failed: of several, one
 * whose saved bank was cut off fails alone. */
static int is_fed(const struct slot *at, int n)
{
    const struct job *j = at->job;

    return n > 1 && cb_session_len(at->session) == j->group->order.n + j->n_made;
}

/* Returns how many answers continue. */
static int fail_batch(struct scheduler *s, int n, int status)
{
    int left = 0;

    for (int i = 0; i < n; i++) {
        struct slot *at = s->batch[i];
        if (is_fed(at, n)) {
            at->pure = 0;
            left++;
        } else {
            fail_slot(s, at, status);
        }
    }
    return left;
}

/* One token of each answer. Returns how many answers continue. */
static int decode(struct scheduler *s)
{
    const int n = sample_all(s);
    const double start_s = cb_now_s();
    int rc;

    if (!n) {
        s->wrote_at = 0;
        return 0;
    }
    hand_out(s, n);
    rc = decode_batch(s, n);
    if (rc)
        return fail_batch(s, n, rc);
    note_batch(s, n, cb_now_s() - start_s);
    s->wrote_at = cb_now_s();
    return n;
}

/* ---- prompts ---- */

/* The prompt that takes the next step: in turns the one that came first, so that none starves, and
 * the shortest, so that short ones need not wait for long ones. */
static struct slot *next_prompt(struct scheduler *s)
{
    struct slot *best = NULL;

    for (int i = 0; i < s->p.slots.n; i++) {
        struct slot *at = &s->slots.at[i];
        if (!at->job || at->job->state != JOB_READS)
            continue;
        const int left = at->job->group->order.n - at->job->n_cached;
        if (!best || (s->n_step & 1 ? at->begun < best->begun
                                    : left < best->job->group->order.n - best->job->n_cached))
            best = at;
    }
    s->n_step++;
    return best;
}

/* The folder gets what has been read of the prompt. */
static void remember(struct scheduler *s, const struct slot *at)
{
    const int saved = cb_pool_remember(&s->slots, at);

    pthread_mutex_lock(&s->lock);
    s->stats.saved_tokens += saved > 0 ? (uint64_t)saved : 0;
    s->stats.save_failures += saved < 0;
    pthread_mutex_unlock(&s->lock);
}

/* The first feed has ended where other questions may part: a copy waits for these there, and the
 * folder has the exact state after a restart. */
static int parting_read(struct scheduler *s, struct slot *at)
{
    int rc;

    cb_pool_keep_place(&s->slots, at, 0);
    if (cb_session_computes_again(at->session))
        remember(s, at);
    rc = feed_to(at->job, at, at->job->group->order.n);
    return rc ? rc : 1;
}

static void prompt_read(struct scheduler *s, const struct slot *at)
{
    struct job *j = at->job;

    remember(s, at);
    if (j->group->order.n - j->n_cached >= WORTH_COPYING && wants_places(at))
        cb_pool_keep_place(&s->slots, at, 1);

    pthread_mutex_lock(&s->lock);
    j->state = JOB_WRITES;
    j->times.read = cb_now_s();
    s->stats.prompt_tokens += (uint64_t)(j->group->order.n - j->n_cached);
    pthread_mutex_unlock(&s->lock);
    s->look = 1; /* others may continue from here */
}

/* Steps of prompts until the next tokens are due. writing: answers that wait for them. Without any,
 * one step, since orders may have come in. */
static void read_prompts(struct scheduler *s, int writing)
{
    struct slot *at;
    double now = cb_now_s(), began;
    int rc;

    do {
        at = next_prompt(s);
        if (!at)
            return;
        began = now;
        rc = cb_session_prefill_step(at->session);
        now = cb_now_s();
        s->step_s = now - began;
        pthread_mutex_lock(&s->lock);
        s->stats.prompt_s += s->step_s;
        pthread_mutex_unlock(&s->lock);
        if (!rc && at->job->n_fed < at->job->group->order.n)
            rc = parting_read(s, at);
        else if (!rc)
            prompt_read(s, at);
        if (rc < 0)
            fail_slot(s, at, rc);
        if (rc <= 0) /* an answer can begin, or a slot is free */
            return;
    } while (writing && now + s->step_s - s->wrote_at < s->p.decode_latency_s);
}

static void *engine(void *arg)
{
    struct scheduler *s = arg;
    int writing;

    while (receive(s)) {
        drop_cancelled(s);
        admit(s);
        writing = decode(s);
        read_prompts(s, writing);
    }
    pthread_mutex_lock(&s->lock);
    s->has_ended = 1;
    pthread_cond_broadcast(&s->over);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- open and close ---- */

static int open_parts(struct scheduler *s)
{
    const size_t n = (size_t)s->p.slots.n;

    TRY(cb_pool_open(&s->p.slots, &s->slots));
    s->view = cb_calloc(n, sizeof *s->view);
    s->used = cb_calloc((size_t)s->p.n_tenant, sizeof *s->used);
    s->batch = cb_calloc(n, sizeof *s->batch);
    s->session = cb_calloc(n, sizeof *s->session);
    s->token = cb_calloc(n, sizeof *s->token);
    if (!s->view || !s->used || !s->batch || !s->session || !s->token)
        return CB_ENOMEM;
    return pthread_create(&s->thread, NULL, engine, s)
               ? cb_fail(CB_ENOMEM, "scheduler: the system refused a thread")
               : CB_OK;
}

static void free_parts(struct scheduler *s)
{
    cb_pool_close(&s->slots);
    free(s->view);
    free(s->used);
    free(s->batch);
    free(s->session);
    free(s->token);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->over);
    free(s);
}

int cb_scheduler_open(const struct scheduler_params *p, struct scheduler **out)
{
    struct scheduler *s = cb_calloc(1, sizeof *s);
    int rc;

    *out = NULL;
    if (!s)
        return CB_ENOMEM;
    s->p = *p;
    pthread_mutex_init(&s->lock, NULL);
    cb_clock_cond(&s->work);
    cb_clock_cond(&s->over);
    rc = open_parts(s);
    if (rc)
        free_parts(s);
    else
        *out = s;
    return rc;
}

void cb_scheduler_stop(struct scheduler *s, double grace_s)
{
    const struct timespec until = cb_clock_in(grace_s);

    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    pthread_cond_broadcast(&s->work);
    while (!s->has_ended && !pthread_cond_timedwait(&s->over, &s->lock, &until))
        ;
    s->stopping = 2;
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
}

void cb_scheduler_close(struct scheduler *s)
{
    if (s)
        free_parts(s);
}
