/* SPDX-License-Identifier: MIT */
/* scheduler_rounds.c - the engine: one thread that owns all sessions and gives each job its turn.
 * The lock is held for moments only: to take orders, and to hand out what was made. */
#include "scheduler_state.h"

#include "base/clock.h"
#include "base/err.h"
#include "engine/session.h"

const double cb_bucket_s[CB_BUCKETS - 1] = { .001, .002, .005, .01, .02, .05, .1,
                                             .2,   .5,   1,    2,   5,   10 };

/* ---- decoding ---- */

static void count(struct histogram *h, double s)
{
    int i = 0;

    while (i < CB_BUCKETS - 1 && s > cb_bucket_s[i])
        i++;
    h->count[i]++;
    h->n++;
    h->sum += s;
}

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
            cb_scheduler_finish(s, at, 1);
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
            cb_scheduler_fail(s, at, status);
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
    rc = cb_scheduler_feed(at->job, at, at->job->group->order.n);
    return rc ? rc : 1;
}

static void prompt_read(struct scheduler *s, const struct slot *at)
{
    struct job *j = at->job;

    remember(s, at);
    if (cb_scheduler_wants_place(at, j->group->order.n - j->n_cached))
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
            cb_scheduler_fail(s, at, rc);
        if (rc <= 0) /* an answer can begin, or a slot is free */
            return;
    } while (writing && now + s->step_s - s->wrote_at < s->p.decode_latency_s);
}

void *cb_scheduler_engine(void *arg)
{
    struct scheduler *s = arg;
    int writing;

    while (cb_scheduler_receive(s)) {
        cb_scheduler_drop_cancelled(s);
        cb_scheduler_admit(s);
        writing = decode(s);
        read_prompts(s, writing);
    }
    pthread_mutex_lock(&s->lock);
    s->has_ended = 1;
    pthread_cond_broadcast(&s->over);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
