/* SPDX-License-Identifier: MIT */
/* session_pool.c - the sessions of a server: which one a job gets, and what it keeps of it. */
#include "session_pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "engine/session.h"
#include "model/model.h"

/* Fewer shared tokens are not worth waiting for, nor a copy of a session */
enum { WORTH = 64 };
enum { WORTH_A_PLACE = 16 }; /* tokens that would be computed again each time */

int cb_pool_open(const struct session_pool_params *p, struct session_pool *out)
{
    *out = (struct session_pool){ .p = *p, .at = cb_calloc((size_t)p->n, sizeof *out->at) };
    return out->at ? CB_OK : CB_ENOMEM;
}

static void empty(struct slot *at)
{
    cb_session_close(at->session);
    free(at->policy);
    free(at->prefill);
    *at = (struct slot){ .begun = at->begun };
}

void cb_pool_close(struct session_pool *s)
{
    for (int i = 0; s->at && i < s->p.n; i++)
        empty(&s->at[i]);
    free(s->at);
    s->at = NULL;
}

/* ---- bytes ---- */

uint64_t cb_slot_bytes(const struct slot *at)
{
    struct cb_memory m;

    if (!at->session)
        return 0;
    cb_session_memory(at->session, &m);
    return m.kv_bytes + m.state_bytes + m.checkpoint_bytes;
}

uint64_t cb_pool_bytes(const struct session_pool *s)
{
    uint64_t sum = 0;

    for (int i = 0; i < s->p.n; i++)
        sum += cb_slot_bytes(&s->at[i]);
    return sum;
}

static uint64_t promised(const struct session_pool *s)
{
    uint64_t sum = 0;

    for (int i = 0; i < s->p.n; i++) {
        const uint64_t now = cb_slot_bytes(&s->at[i]), later = s->at[i].job ? s->at[i].reserved : 0;
        sum += now > later ? now : later;
    }
    return sum;
}

static int n_working(const struct session_pool *s)
{
    int n = 0;

    for (int i = 0; i < s->p.n; i++)
        n += s->at[i].job != NULL;
    return n;
}

/* What is dropped later: documents, copies of places, what was used last */
static int dropped_before(const struct slot *a, const struct slot *b)
{
    if (a->keep != b->keep)
        return a->keep < b->keep;
    return a->place != b->place ? a->place < b->place : a->begun < b->begun;
}

/* The kept session that is dropped first; NULL: there is none. */
static struct slot *oldest_kept(struct session_pool *s, const struct slot *spare)
{
    struct slot *old = NULL;

    for (int i = 0; i < s->p.n; i++) {
        struct slot *at = &s->at[i];
        if (!at->session || at->job || at == spare)
            continue;
        if (!old || dropped_before(at, old))
            old = at;
    }
    return old;
}

/* What the job will need at most */
static int reserve(struct session_pool *s, struct slot *at, const struct job *j)
{
    const struct job_order *o = &j->group->order;
    const int room = cb_session_n_ctx(at->session) - o->n;
    struct cb_memory m;

    TRY(cb_session_plan(at->session, o->n, o->max_tokens < 0 ? room : min_int(room, o->max_tokens),
                        &m));
    at->reserved = m.kv_peak_bytes + m.state_bytes + m.checkpoint_bytes;
    if (s->p.most_bytes && at->reserved > s->p.most_bytes)
        return cb_fail(CB_EFULL,
                       "bank: the request may need %llu bytes of keys and values, more than the "
                       "limit of %llu: ask for fewer tokens",
                       (unsigned long long)at->reserved, (unsigned long long)s->p.most_bytes);
    return CB_OK;
}

/* Makes room for what the job in `at` reserved, by dropping kept sessions. 1: there is room. */
static int fits(struct session_pool *s, struct slot *at)
{
    struct slot *old;

    while (s->p.most_bytes && promised(s) > s->p.most_bytes) {
        old = oldest_kept(s, at);
        if (!old)
            return n_working(s) == 1; /* it alone: reserve() has compared */
        empty(old);
    }
    return 1;
}

/* ---- what a session has of a prompt ---- */

static const char *model_policy(const struct session_pool *s)
{
    struct cb_model_info info;

    cb_model_get_info(s->p.model, &info);
    return info.policy;
}

static const char *policy_of(const struct session_pool *s, const struct job *j)
{
    const struct job_order *o = &j->group->order;
    return o->policy ? o->policy : s->p.session.policy ? s->p.session.policy : model_policy(s);
}

static const char *prefill_of(const struct session_pool *s, const struct job *j)
{
    const struct job_order *o = &j->group->order;
    return o->prefill ? o->prefill : s->p.session.prefill ? s->p.session.prefill : "dense";
}

static int same_kind(const struct session_pool *s, const struct slot *at, const struct job *j)
{
    return at->session && !strcmp(at->policy, policy_of(s, j)) &&
           !strcmp(at->prefill, prefill_of(s, j));
}

static int common(const int32_t *a, int n_a, const int32_t *b, int n_b)
{
    const int n = min_int(n_a, n_b);
    int i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* How many tokens of the job's prompt the timeline has. The last token must be fed, for its logits,
 * unless the timeline ends with it and nothing but exact logits can be there. */
static int usable(const struct slot *at, const struct job *j)
{
    const struct job_order *o = &j->group->order;
    const int len = cb_session_len(at->session);
    const int n = len ? common(o->ids, o->n, cb_session_tokens(at->session), len) : 0;

    return n == o->n && !(at->pure && n == len) ? n - 1 : n;
}

/* 1: a prompt that is being read begins as the job's does, for longer than `best` tokens */
static int worth_waiting(const struct session_pool *s, struct job *j, int best)
{
    const struct job_order *o = &j->group->order;

    for (int i = 0; i < s->p.n; i++) {
        const struct slot *at = &s->at[i];
        if (!at->job || at->job->state != JOB_READS || !same_kind(s, at, j))
            continue;
        const struct job_order *other = &at->job->group->order;
        if (common(o->ids, o->n, other->ids, other->n) >= best + WORTH)
            return 1;
    }
    return 0;
}

/* ---- taking ---- */

/* A slot that may be emptied: one without a session, else the least recently used */
static struct slot *spare_slot(struct session_pool *s, const struct slot *but)
{
    for (int i = 0; i < s->p.n; i++)
        if (!s->at[i].session)
            return &s->at[i];
    return oldest_kept(s, but);
}

static int name(const struct session_pool *s, struct slot *at, const struct job *j)
{
    at->policy = strdup(policy_of(s, j));
    at->prefill = strdup(prefill_of(s, j));
    return at->policy && at->prefill ? CB_OK : cb_fail(CB_ENOMEM, "out of memory");
}

/* Puts session f, which it owns, into the slot. */
static int fill(const struct session_pool *s, struct slot *to, const struct job *j, cb_session *f)
{
    empty(to);
    to->session = f;
    if (!name(s, to, j))
        return CB_OK;
    empty(to);
    return CB_ENOMEM;
}

/* A copy of `from`, cut to n tokens, in `to`. */
static int take_copy(struct session_pool *s, struct job *j, const struct slot *from,
                     struct slot *to, int n)
{
    cb_session *f;
    int rc;

    TRY(cb_session_fork(from->session, &f));
    rc = cb_session_truncate(f, n);
    if (!rc)
        return fill(s, to, j, f);
    cb_session_close(f);
    return rc;
}

static struct cb_session_params params_of(const struct session_pool *s, const struct job *j)
{
    struct cb_session_params p = s->p.session;

    p.policy = policy_of(s, j);
    p.prefill = prefill_of(s, j);
    p.guest = !s->p.session.policy || strcmp(p.policy, s->p.session.policy) != 0;
    return p;
}

static int take_new(struct session_pool *s, struct job *j, struct slot *at)
{
    const struct cb_session_params p = params_of(s, j);
    cb_session *f;

    if (same_kind(s, at, j)) {
        cb_session_clear(at->session);
        return CB_OK;
    }
    empty(at); /* first: its memory may be needed */
    TRY(cb_session_open(s->p.model, &p, &f));
    return fill(s, at, j, f);
}

/* What the folder has of the prompt, if that is much more than the `best` tokens of a kept session.
 * A job looks once. */
static int take_remembered(struct session_pool *s, struct job *j, int best, struct slot **out,
                           int *kept)
{
    const struct job_order *o = &j->group->order;
    const struct cb_session_params p = params_of(s, j);
    cb_session *f;
    int n;

    if (!s->p.dir || j->looked || o->n < best + WORTH)
        return 0;
    j->looked = 1;
    TRY(cb_bank_dir_find(s->p.dir, s->p.model, &p, o->ids, o->n, &f, &n));
    *out = spare_slot(s, NULL);
    if (!*out || n < best + WORTH) {
        cb_session_close(f);
        return 0;
    }
    *kept = j->n_remembered = n;
    TRY(fill(s, *out, j, f));
    return 1;
}

int cb_pool_remember(struct session_pool *s, const struct slot *at)
{
    const int n = cb_session_len(at->session);
    const int had = max_int(at->job->n_cached, at->job->n_put);
    int rc;

    if (!s->p.dir || n == had || n - at->job->n_cached < WORTH)
        return 0;
    rc = cb_bank_dir_put(s->p.dir, at->session);
    if (rc)
        cb_model_log(s->p.model, CB_LOG_NOTE, "%s; a prompt of %d tokens is not remembered",
                     cb_error(), n);
    else
        at->job->n_put = n;
    return rc ? rc : n - had;
}

void cb_pool_keep_parting(struct session_pool *s, const struct slot *at)
{
    if (!at->job->parts || cb_session_len(at->session) < WORTH)
        return;
    cb_pool_keep_place(s, at, 0);
    if (s->p.dir && cb_bank_dir_put(s->p.dir, at->session))
        cb_model_log(s->p.model, CB_LOG_NOTE, "%s; where a prompt parts is not remembered",
                     cb_error());
}

/* Half of the slots may be copies of places; then the oldest of them gives way, but not one of the
 * same prompt. */
static struct slot *slot_for_place(struct session_pool *s, const struct slot *at)
{
    struct slot *old = NULL;
    int n = 0;

    for (int i = 0; i < s->p.n; i++) {
        struct slot *p = &s->at[i];
        n += p->place;
        if (p->place && !p->job && p->begun < at->begun && (!old || p->begun < old->begun))
            old = p;
    }
    return n < s->p.n / 2 ? spare_slot(s, at) : old;
}

void cb_pool_keep_place(struct session_pool *s, const struct slot *at, int last)
{
    struct slot *to = slot_for_place(s, at);
    cb_session *f;

    if (!to || at->job->group->order.no_cache ||
        (s->p.most_bytes && promised(s) + cb_slot_bytes(at) > s->p.most_bytes))
        return;
    if (cb_session_fork(at->session, &f) || fill(s, to, at->job, f))
        return; /* a copy less */
    to->place = 1;
    to->pure = last;
    to->begun = at->begun;
}

/* A session that has n tokens of the prompt, and how many of them it need not compute again to go
 * back to them */
struct offer {
    struct slot *at;
    int n, free;
};

static struct offer offer_of(const struct job *j, struct slot *at)
{
    const int n = usable(at, j);
    const int back = n < cb_session_len(at->session) && cb_session_computes_again(at->session);

    return (struct offer){ at, n, back ? cb_bank_checkpoint(&at->session->bank, n) : n };
}

/* Two sessions share as many tokens: one that need not be cut back is better, then one that is kept
 */
static int suits_better(const struct offer *a, const struct offer *b)
{
    const int a_ends = cb_session_len(a->at->session) == a->n;
    const int b_ends = cb_session_len(b->at->session) == b->n;

    if (a->free != b->free)
        return a->free > b->free;
    return a_ends != b_ends ? a_ends : b->at->job && !a->at->job;
}

/* The session that has most of the prompt; *back: how many tokens of it are computed again to go
 * back there. A working one can be copied between two of its tokens,
 * but not while it reads. */
static struct slot *best_slot(struct session_pool *s, const struct job *j, int most, int *n,
                              int *back)
{
    struct offer best = { NULL, 0, 0 };

    for (int i = 0; i < s->p.n; i++) {
        struct slot *at = &s->at[i];
        struct offer o;
        if (!same_kind(s, at, j) || (at->job && at->job->state == JOB_READS))
            continue;
        o = offer_of(j, at);
        if (o.n > 0 && o.n < most && (!best.at || suits_better(&o, &best)))
            best = o;
    }
    *n = best.n;
    *back = best.n - best.free;
    return best.at;
}

/* Uses `best`, which has n tokens of the prompt: itself, or a copy if it works or would lose more
 * than it keeps. 1: *out has the session; 0: not worth it; negative: its policy cannot go back. */
static int use(struct session_pool *s, struct job *j, struct slot *best, int n, struct slot **out)
{
    struct slot *to = spare_slot(s, best);

    *out = best;
    if (!best->job &&
        (!to || (!best->keep && !best->place && cb_session_len(best->session) - n <= n))) {
        TRY(cb_session_truncate(best->session, n));
        return 1;
    }
    if (!to || n < WORTH)
        return 0;
    *out = to;
    TRY(take_copy(s, j, best, to, n));
    if (best->place)
        best->begun = ++s->n_begun;
    return 1;
}

/* Kept sessions whose saved bank has changed are of no use. */
static void drop_lost(struct session_pool *s)
{
    for (int i = 0; i < s->p.n; i++)
        if (s->at[i].session && !s->at[i].job && cb_session_check_files(s->at[i].session))
            empty(&s->at[i]);
}

/* A session for the job, in a slot that no job has */
static int find_slot(struct session_pool *s, struct job *j, struct slot **out, int *kept)
{
    const int no_cache = j->group->order.no_cache;
    int most = no_cache ? 0 : INT32_MAX, back, rc;
    struct slot *best = best_slot(s, j, most, kept, &back);

    if (!no_cache && j->patient && (j->awaits = worth_waiting(s, j, *kept)))
        return 0;
    rc = no_cache ? 0 : take_remembered(s, j, *kept, out, kept);
    if (rc)
        return rc;
    for (; best; best = best_slot(s, j, most, kept, &back)) {
        rc = use(s, j, best, *kept, out);
        j->parts = rc > 0 && back >= WORTH_A_PLACE;
        if (rc > 0)
            return 1;
        j->patient &= rc == 0; /* others of this policy cannot go back either */
        most = *kept;          /* try one that has less */
    }
    *kept = 0;
    *out = spare_slot(s, NULL);
    if (!*out)
        return 0;
    TRY(take_new(s, j, *out));
    return 1;
}

int cb_pool_take(struct session_pool *s, struct job *j, struct slot **out, int *kept)
{
    int rc;

    j->awaits = 0;
    if (n_working(s) == s->p.n)
        return 0;
    drop_lost(s);
    rc = find_slot(s, j, out, kept);
    if (rc <= 0)
        return rc;
    TRY(reserve(s, *out, j));
    (*out)->job = j;
    if (!fits(s, *out)) {
        (*out)->job = NULL;
        return 0;
    }
    (*out)->begun = ++s->n_begun;
    (*out)->pure = 1;
    (*out)->keep = (*out)->place = 0;
    return 1;
}

/* It will be copied, never used: it becomes a copy itself, so that the others share its pages. */
static void become_copy(struct slot *at)
{
    cb_session *f;

    if (cb_session_fork(at->session, &f))
        return;
    cb_session_close(at->session);
    at->session = f;
}

void cb_pool_give(struct session_pool *s, struct slot *at, int trusted)
{
    (void)s;
    at->keep = at->job->group->order.keep;
    if (at->keep && trusted)
        become_copy(at);
    at->job = NULL;
    at->reserved = 0;
    at->pure = 0;
    at->place = 0;
    if (!trusted)
        empty(at);
}
