/* SPDX-License-Identifier: MIT */
/* model_drafter.c - the draft model's session is compared with the timeline at each guess, so it
 * may serve several timelines in turn, and a timeline that was cut needs no notice. A session that
 * holds less than the timeline follows the end of it. */
#include "model_drafter.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/ints.h"
#include "likeliest.h"
#include "session.h"

enum { AT_ONCE = 16 }; /* tokens that are read in one go, as if each were decoded */

/* Where the session's part of the timeline begins: at its beginning where that fits. Else it goes
 * on from where it is, and when it is full it begins again with half of what it holds. */
static int begin_at(const struct model_drafter *d, int n, int most)
{
    const int room = d->s->bank.n_ctx - most;

    if (n <= room)
        return 0;
    return d->from > 0 && n > d->from && n - d->from <= room ? d->from : n - room / 2;
}

/* How many tokens of the session, those of a prompt in progress included, are the timeline's */
static int common(const cb_session *s, const int32_t *tokens, int n)
{
    const int most = min_int(n, s->bank.n_seen + s->bank.n_feed);
    int i = 0;

    while (i < most && s->token[i] == tokens[i])
        i++;
    return i;
}

/* Takes back what is not the timeline's tokens[n]; the last of them is left to be fed. */
static int part(cb_session *s, const int32_t *tokens, int n)
{
    int same = common(s, tokens, n);

    if (same < s->bank.n_seen + s->bank.n_feed)
        cb_session_prefill_cancel(s);
    same = min_int(same, n - 1);
    if (s->bank.n_feed || same >= s->bank.n_seen)
        return CB_OK;
    same = cb_bank_checkpoint(&s->bank, same); /* what is after it is read again */
    if (!cb_attention_uncut(&s->attention, same))
        return cb_session_truncate(s, same);
    cb_session_clear(s); /* a window has dropped rows further back than the last guesses */
    return CB_OK;
}

/* Feeds what is missing of tokens[n]. 1: not all yet */
static int read_on(cb_session *s, const int32_t *tokens, int n, double spare_s)
{
    const double end_s = cb_now_s() + spare_s;
    const float *logits;
    int left;

    TRY(part(s, tokens, n));
    if (!s->bank.n_feed && n - s->bank.n_seen <= min_int(AT_ONCE, s->chunk))
        return cb_session_decode_all(s, tokens + s->bank.n_seen, n - s->bank.n_seen, &logits);
    if (!s->bank.n_feed)
        TRY(cb_session_prefill_begin(s, tokens + s->bank.n_seen, n - s->bank.n_seen, NULL));
    do
        left = cb_session_prefill_step(s);
    while (left > 0 && cb_now_s() < end_s);
    return left ? left : s->bank.n_seen < n;
}

/* The likeliest token, or -1: unsure, or none that the other model would continue from */
static int32_t likeliest(const struct model_drafter *d)
{
    const float *logits = cb_session_logits(d->s);
    const int32_t id = cb_likeliest(logits, d->s->model->hp.n_vocab, 1);

    return id >= d->n_vocab || (id >= 0 && cb_token_is_end(d->s->model, id)) ? -1 : id;
}

static int guess_each(const struct model_drafter *d, int32_t *draft, int most)
{
    for (int i = 0; i < most; i++) {
        if (i)
            TRY(cb_session_decode(d->s, draft[i - 1]));
        draft[i] = likeliest(d);
        if (draft[i] < 0)
            return i;
    }
    return most;
}

/* Windows and states are held as they are now: rejected guesses are taken back. */
static int guess(const struct model_drafter *d, int32_t *draft, int most)
{
    int got;

    TRY(cb_session_work_fit_draft(d->s, most));
    cb_draft_rows_begin(&d->s->attention, most, 0);
    cb_states_hold(&d->s->bank.states, 1);
    got = guess_each(d, draft, most);
    cb_states_hold(&d->s->bank.states, 0);
    return got;
}

int cb_model_drafter_guess(struct model_drafter *d, const int32_t *tokens, int n, int32_t *draft,
                           int most, double spare_s, int *reads)
{
    int got;

    *reads = 0;
    if (!d->s || d->s->bank.n_ctx < 2 * (most + 1))
        return 0;
    d->from = begin_at(d, n, most);
    got = read_on(d->s, tokens + d->from, n - d->from, spare_s);
    *reads = got > 0;
    if (!got)
        got = guess(d, draft, most);
    if (got < 0) {
        cb_model_log(d->s->model, CB_LOG_NOTE, "no more drafts of the draft model: %s", cb_error());
        d->s = NULL;
    }
    return *reads ? 0 : max_int(got, 0);
}
