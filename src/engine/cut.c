/* SPDX-License-Identifier: MIT */
/* cut.c - cuts a timeline back. Rows of keys are dropped; layers that remember without keys go back
 * to a checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "base/err.h"
#include "base/ints.h"
#include "in_step.h"
#include "session.h"

/* Feeds tokens[n] of the timeline as they were fed before: a run of a prompt's at once, and the
 * decoded ones one by one. */
static int feed_again(struct cb_session *s, const int32_t *token, const char *decoded, int n)
{
    int err = CB_OK;

    for (int i = 0, m; !err && i < n; i += m) {
        for (m = 1; !decoded[i] && i + m < n && !decoded[i + m];)
            m++;
        err =
            decoded[i] ? cb_session_decode(s, token[i]) : cb_session_prefill(s, token + i, m, NULL);
    }
    return err;
}

/* Why the timeline cannot be cut back to n tokens; NULL: it can */
static const char *uncut(const struct cb_session *s, int n)
{
    const char *why = cb_attention_uncut(&s->attention, n);

    if (!why && cb_attention_has(&s->attention, READ_STATE) && !cb_session_extends(s) &&
        !cb_states_in_draft(&s->bank.states, s->bank.n_seen, n))
        why = "a layer remembers without keys, and what it would compute once more depends on "
              "later tokens";
    return why;
}

/* Does a cut to `at` unpack, and so round, rows of the first s->n_prefill_exact tokens? */
static int rounds(const struct cb_session *s, int at)
{
    const int block = at / KV_PREPACK;

    if (cb_session_extends(s))
        return !cb_session_cuts_exactly(s, at);
    if (!cb_session_only_forks(s))
        return at % KV_PREPACK != 0;
    return at % KV_PREPACK && block < s->bank.n_seen / KV_PREPACK &&
           block * KV_PREPACK < s->n_prefill_exact;
}

/* s->n_prefill_exact after a cut to `at` */
static int exact_after(const struct cb_session *s, int at)
{
    if (cb_session_prefill_is_exact(s, at))
        return at;
    return at > s->n_prefill_exact && !rounds(s, at) ? s->n_prefill_exact : 0;
}

/* at: the last place at or before n that a cut can go to. The device unpacks prepacked blocks into
 * rows. */
static int cut(struct cb_session *s, int at)
{
    const int exact = exact_after(s, at);
    int err = CB_OK;

    TRY(cb_device_lock(s->dev));
    cb_session_keep_shared(s, at);
    err = cb_attend_take_back(&s->attention, at);
    cb_attention_cut(&s->attention, at);
    if (!err)
        err = cb_attention_resume(&s->attention, at);
    cb_session_went_back(s, at);
    s->n_prefill_exact = exact;
    if (!err && /* a draft's tokens, or a checkpoint's rows, went through ops again */
        cb_attention_has(&s->attention, READ_STATE | READ_RESUMES))
        err = cb_device_wait(s->dev);
    if (err)
        cb_session_forget(s);
    cb_device_unlock(s->dev);
    return err;
}

/* Goes back to `at` and computes the tokens between it and n once more. What they leave must be
 * what they left the first time. */
static int cut_and_feed(struct cb_session *s, int at, int n)
{
    const size_t more = (size_t)(n - at);
    const int end = min_int(n, s->bank.prompt_end);
    int32_t *token = cb_calloc(more + 1, sizeof *token);
    char *decoded = cb_calloc(more + 1, sizeof *decoded);
    int err = token && decoded ? CB_OK : CB_ENOMEM;

    if (!err) {
        memcpy(token, s->token + at, more * sizeof *token);
        memcpy(decoded, s->decoded + at, more * sizeof *decoded);
        err = cut(s, at);
    }
    if (!err)
        err = feed_again(s, token, decoded, (int)more);
    if (!err)
        s->bank.prompt_end = end;
    free(token);
    free(decoded);
    return err;
}

static void clear(cb_session *s)
{
    if (cb_device_lock(s->dev))
        return;
    cb_session_forget(s);
    cb_device_unlock(s->dev);
}

/* What cannot be told now fails with the next call. */
void cb_session_clear(cb_session *s)
{
    if (s->busy)
        return;
    if (!s->bank.n_seen && !s->bank.n_feed) {
        clear(s);
        return;
    }
    if (cb_in_step_begin(s, VERB_CUT, &(int32_t){ 0 }, sizeof(int32_t)))
        return;
    clear(s);
    cb_in_step_end(s->in_step, CB_OK);
}

/* The last place at or before n that a cut can go to. A checkpoint that its saved bank has lost
 * costs more tokens to compute. */
static int place(struct cb_session *s, int n, int *at)
{
    struct states *st = &s->bank.states;
    int err;

    *at = 0;
    while (!cb_states_in_draft(st, s->bank.n_seen, n) && (err = cb_states_fetch(st, n))) {
        if (err != CB_EFORMAT && err != CB_EIO)
            return err;
        cb_model_log(s->model, CB_LOG_NOTE, "%s; an earlier state serves instead", cb_error());
    }
    *at = cb_bank_checkpoint(&s->bank, n);
    return CB_OK;
}

static int truncate(struct cb_session *s, int n)
{
    int at;

    if (n) {
        TRY(place(s, n, &at));
        TRY(cut_and_feed(s, at, n));
    } else {
        clear(s);
    }
    memset(s->w.logits, 0, (size_t)s->model->hp.n_vocab * sizeof *s->w.logits);
    return CB_OK;
}

int cb_session_truncate(cb_session *s, int n)
{
    const int32_t number = n;
    const char *why;

    TRY(cb_session_check_idle(s));
    if (n < 0 || n > s->bank.n_seen)
        return cb_fail(CB_EARG, "truncate: %d tokens of %d", n, s->bank.n_seen);
    if (n == s->bank.n_seen)
        return CB_OK;
    if (n && (why = uncut(s, n)))
        return cb_fail(CB_EUNSUPPORTED, "truncate: policy %s cannot go back to %d tokens: %s",
                       s->policy->m->name, n, why);
    TRY(cb_in_step_begin(s, VERB_CUT, &number, sizeof number));
    return cb_in_step_end(s->in_step, truncate(s, n));
}
