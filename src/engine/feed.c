/* SPDX-License-Identifier: MIT */
/* feed.c - feeds tokens to sessions: a prompt at once or in steps, one token, or one token of each
 * of several sessions. Each call holds the device's lock while it computes. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "attention/attend.h"
#include "base/err.h"
#include "base/ints.h"
#include "device/split_rows.h"
#include "feed_call.h"
#include "in_step.h"
#include "layer_ahead.h"
#include "layer_ring.h"
#include "mtp_drafter.h"
#include "session.h"
#include "snapshot.h"

/* After a call that waited for more pages than this, this many calls ask for their rows ahead. */
enum { COLD_FROM = 32, COLD_FOR = 64 };

int cb_feed_check(const struct cb_session *s, const int32_t *tokens, int n)
{
    const int held =
        cb_context_split_deals_any(&s->attention) ? s->bank.n_seen : cb_bank_max_len(&s->bank);

    TRY(cb_session_check_idle(s));
    if (s->model->assistant)
        return cb_fail(CB_EUNSUPPORTED, "%s: guesses for another model, and writes no text itself",
                       s->model->arch->name);
    if (n < 1)
        return cb_fail(CB_EARG, "prompt: no tokens");
    if (n > s->n_ctx - held || n > INT32_MAX - s->bank.n_seen)
        return cb_fail(CB_EFULL, "context: %d tokens do not fit after %d in a context of %d", n,
                       held, s->n_ctx);
    for (int i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= s->model->hp.n_vocab)
            return cb_fail(CB_EARG, "token %d: id %d is not in the vocabulary of %d", i, tokens[i],
                           s->model->hp.n_vocab);
    return CB_OK;
}

static int check_how(const struct cb_session *s, const struct cb_prefill *how, int n)
{
    if (how && how->logits && (how->logits_from < 0 || how->logits_from > n))
        return cb_fail(CB_EARG, "prefill: logits from token %d of %d", how->logits_from, n);
    if (how && how->logits && how->states)
        return cb_fail(CB_EARG, "prefill: either logits or states");
    if (how && cb_attention_narrows(&s->attention) &&
        (how->states || (how->logits && how->logits_from < n - 1)))
        return cb_fail(CB_EUNSUPPORTED,
                       "prefill: policy %s computes only some tokens in all layers, so that only "
                       "the last one's logits are known",
                       s->policy->m->name);
    return CB_OK;
}

/* Undoes a failed feed: drops its tokens, or all tokens if slots may have been dropped, turned or
 * merged meanwhile. */
static void undo(struct cb_session *s)
{
    const int resumes = cb_attention_has(&s->attention, READ_RESUMES);
    int drops = s->policy->m->compact || s->policy->m->layer_bytes ||
                cb_attention_has(&s->attention, READ_UNDOES) ||
                (s->bank.decoding && (cb_attention_has(&s->attention, READ_STATE) || resumes));

    cb_layer_ahead_end(s);
    for (int l = 0; l < s->model->hp.n_layer; l++)
        drops |= cb_attend_forgets(&s->attention, l) > 0 && !resumes;
    if (drops)
        cb_session_forget(s);
    else if (!resumes)
        cb_bank_cut(&s->bank, s->bank.n_seen);
    else
        cb_attention_cut(&s->attention, s->bank.n_seen);
    if (!drops && resumes && cb_attention_resume(&s->attention, s->bank.n_seen))
        cb_session_forget(s);
    s->n_prefill_exact = 0; /* the last block may have been unpacked */
}

/* A prompt that began after `from` tokens is complete. */
static void end_prompt(struct cb_session *s, int from)
{
    s->bank.prompt_end = s->bank.n_seen;
    if (!from || (from == s->n_prefill_exact && cb_session_extends(s) && !cb_session_expands(s)))
        s->n_prefill_exact = s->bank.n_seen;
}

/* ---- calls that compute ---- */

static void run_body(void *ctx)
{
    struct feed_call *c = ctx;
    c->status = c->body(c);
}

/* Times that the process has waited for the disk */
static long waits(void)
{
    struct rusage u;

    return getrusage(RUSAGE_SELF, &u) ? 0 : u.ru_majflt;
}

/* A call that waited for many pages is followed by some that ask for their rows ahead. */
static void note_waits(struct cb_session *s, long n)
{
    int *cold = &s->attention.cold_pages;

    if (s->mapped)
        *cold = n > COLD_FROM ? COLD_FOR : *cold ? *cold - 1 : 0;
}

static int any_mapped(const struct feed_call *c)
{
    int any = 0;

    for (int i = 0; i < c->n_session; i++)
        any |= c->s[i]->mapped != NULL;
    return any;
}

/* What crossed over for the last decoded token is what `after` has more than `before`. */
static void note_traffic(struct feed_call *c, struct device_traffic before,
                         struct device_traffic after)
{
    for (int i = 0; i < c->n_session; i++) {
        c->s[i]->traffic[0] = before;
        c->s[i]->traffic[1] = after;
    }
}

/* After the body: sessions that have computed with wrong rows become empty, as do all after a
 * failure. The others of a batch have their tokens. */
static int end_call(struct feed_call *c)
{
    int err = c->status;

    for (int i = 0; i < c->n_session; i++) {
        struct cb_session *s = c->s[i];
        const int lost = cb_session_check_files(s);
        if (c->status < 0 || lost)
            undo(s);
        if (lost)
            cb_session_forget(s);
        if (lost && err >= 0)
            err = lost;
        s->busy = 0;
    }
    return err;
}

int cb_feed_run(struct feed_call *c, int decoding)
{
    const struct cb_model *m = c->s[0]->model;
    struct device *d = m->dev;
    const int mapped = any_mapped(c);
    struct device_traffic traffic;
    const long before = mapped ? waits() : 0;
    int err;

    for (int i = 0; i < c->n_session; i++)
        if (cb_in_step_reads_logits(c->s[i]))
            TRY(cb_mtp_drafter_open(c->s[i]));
    TRY(cb_device_lock(d));
    for (int i = 0; i < c->n_session; i++) {
        c->s[i]->busy = 1;
        cb_session_keep_shared(c->s[i], c->s[i]->bank.n_seen);
        c->s[i]->bank.decoding = decoding;
    }
    traffic = cb_device_traffic(d);
    cb_par_limit(d->par, decoding ? m->n_threads : m->n_threads_batch);
    cb_par_run(d->par, run_body, c);
    if (cb_split_rows_status(d))
        c->status = cb_split_rows_status(d);
    for (int i = 0; mapped && i < c->n_session; i++)
        note_waits(c->s[i], waits() - before);
    note_traffic(c, decoding ? traffic : cb_device_traffic(d), cb_device_traffic(d));
    if (c->status < 0)
        (void)cb_device_wait(d); /* nothing may still write rows that are about to be dropped */
    err = end_call(c);
    cb_device_unlock(d);
    return err;
}

static int forward_body(const struct feed_call *c)
{
    return cb_forward(c->s[0], c->tokens, c->n, c->how);
}

/* A prompt begins here: notes its tokens, and makes room. */
static int ready(struct cb_session *s, const int32_t *tokens, int n, const struct cb_prefill *how)
{
    TRY(check_how(s, how, n));
    TRY(cb_feed_check(s, tokens, n));
    TRY(cb_session_note_tokens(s, tokens, n));
    return cb_session_work_fit(s, max_int(n, cb_session_repeats(s, n)));
}

static int prefill_at_once(struct cb_session *s, const int32_t *tokens, int n,
                           const struct cb_prefill *how)
{
    struct feed_call c = { &s, 1, tokens, n, how, forward_body, CB_OK };
    const int from = s->bank.n_seen;

    TRY(ready(s, tokens, n, how));
    TRY(cb_feed_run(&c, 0));
    end_prompt(s, from);
    return CB_OK;
}

static int prefill_in_ring(struct cb_session *s, const int32_t *tokens, int n,
                           const struct cb_prefill *how);

/* Several ranks take a prompt in steps, so that it can be stopped between them. */
int cb_session_prefill(cb_session *s, const int32_t *tokens, int n, const struct cb_prefill *how)
{
    int left;

    if (!s->in_step)
        return prefill_at_once(s, tokens, n, how);
    if (cb_ring_is(s))
        return prefill_in_ring(s, tokens, n, how);
    TRY(cb_session_prefill_begin(s, tokens, n, how));
    do
        left = cb_session_prefill_step(s);
    while (left > 0);
    return left;
}

int cb_session_decode(cb_session *s, int32_t token)
{
    struct feed_call c = { &s, 1, &token, 1, NULL, forward_body, CB_OK };

    TRY(cb_feed_check(s, &token, 1));
    TRY(cb_session_note_tokens(s, &token, 1));
    TRY(cb_session_work_fit(s, 1));
    TRY(cb_in_step_begin(s, VERB_DECODE, &token, sizeof token));
    return cb_in_step_end(s->in_step, cb_feed_run(&c, 1));
}

/* ---- a prompt in steps ---- */

static int begin_body(const struct feed_call *c)
{
    cb_forward_begin(c->s[0], c->tokens, c->n);
    return CB_OK;
}

/* The caller's own progress is asked between steps, which all ranks complete. */
static int note_stop(void *arg, int64_t done, int64_t total)
{
    struct cb_session *s = arg;

    s->stop |= s->asked.progress && s->asked.progress(s->asked.progress_arg, done, total);
    return 0;
}

/* A prompt in progress, and what its earlier pieces have left, is taken back: policies that drop
 * nothing take pieces. */
static void take_back(struct cb_session *s, int n)
{
    if (s->bank.n_feed)
        undo(s);
    if (s->bank.n_seen <= n)
        return;
    n = cb_attention_has(&s->attention, READ_STATE) ? 0 : n;
    if (n)
        cb_attention_cut(&s->attention, n);
    else
        cb_session_forget(s);
    cb_session_went_back(s, n);
    s->n_prefill_exact = 0;
}

static void go_back(struct cb_session *s, int n)
{
    const int32_t number = n;

    s->partial_prompt = 0;
    if (cb_in_step_begin(s, VERB_CANCEL, &number, sizeof number))
        return;
    if (!cb_device_lock(s->dev)) {
        take_back(s, n);
        cb_device_unlock(s->dev);
    }
    cb_in_step_end(s->in_step, CB_OK);
}

/* A piece of a prompt goes through all layers, each rank's in turn. A rank that has sent it on
 * takes the next one, so that the ranks compute at the same time. */
static int prefill_piece(struct cb_session *s, const int32_t *tokens, int n,
                         const struct cb_prefill *how)
{
    struct feed_call c = { &s, 1, tokens, n, how, forward_body, CB_OK };
    const int from = s->bank.n_seen;

    TRY(ready(s, tokens, n, how));
    s->how = *how;
    TRY(cb_in_step_begin_prompt(s, tokens, n));
    TRY(cb_in_step_end(s->in_step, cb_feed_run(&c, 0)));
    end_prompt(s, from);
    return CB_OK;
}

/* On rank 0, and within a told call, the pieces are this function's; other ranks are told each. */
static int prefill_in_ring(struct cb_session *s, const int32_t *tokens, int n,
                           const struct cb_prefill *how)
{
    const int from = s->bank.n_seen, told = !cb_in_step_leads(s);
    const int all = how && (how->logits || how->states);
    const int step = told || all || !cb_session_extends(s) ? n : s->chunk;
    struct cb_prefill quiet = { 0 };

    TRY(check_how(s, how, n));
    TRY(cb_feed_check(s, tokens, n));
    if (how)
        quiet = *how;
    quiet.progress = NULL;
    for (int i = 0, m; i < n; i += m) {
        m = min_int(step, n - i);
        s->partial_prompt = told ? s->partial_prompt : i + m < n;
        TRY(prefill_piece(s, tokens + i, m, &quiet));
        if (!told && how && how->progress && how->progress(how->progress_arg, i + m, n) &&
            i + m < n) {
            go_back(s, from);
            return cb_fail(CB_ECANCEL, "prefill: stopped");
        }
    }
    s->partial_prompt = 0;
    return CB_OK;
}

int cb_session_prefill_begin(cb_session *s, const int32_t *tokens, int n,
                             const struct cb_prefill *how)
{
    static const struct cb_prefill silent = { 0 };
    struct feed_call c = { &s, 1, tokens, n, NULL, begin_body, CB_OK };

    if (cb_ring_is(s))
        return prefill_in_ring(s, tokens, n, how);
    TRY(ready(s, tokens, n, how));
    s->how = s->asked = how ? *how : silent;
    s->prompt_from = s->bank.n_seen;
    s->stop = 0;
    if (s->in_step) {
        s->how.progress = note_stop;
        s->how.progress_arg = s;
    }
    TRY(cb_in_step_begin_prompt(s, tokens, n));
    return cb_in_step_end(s->in_step, cb_feed_run(&c, 0));
}

static int step_body(const struct feed_call *c)
{
    return cb_forward_step(c->s[0], &c->s[0]->how);
}

int cb_session_prefill_step(cb_session *s)
{
    struct feed_call c = { .s = &s, .n_session = 1, .body = step_body };
    int left;

    TRY(cb_session_check_callback(s));
    if (!s->bank.n_feed)
        return 0;
    TRY(cb_in_step_begin(s, VERB_STEP, NULL, 0));
    left = cb_in_step_end(s->in_step, cb_feed_run(&c, 0));
    if (!left)
        end_prompt(s, s->prompt_from);
    if (left > 0 && s->stop) {
        cb_session_prefill_cancel(s);
        return cb_fail(CB_ECANCEL, "prefill: stopped");
    }
    return left;
}

void cb_session_prefill_take_back(struct cb_session *s, int n)
{
    if (!s->busy)
        go_back(s, n);
}

void cb_session_prefill_cancel(cb_session *s)
{
    if (!s->busy && s->bank.n_feed)
        go_back(s, s->bank.n_seen);
}
