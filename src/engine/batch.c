/* SPDX-License-Identifier: MIT */
/* batch.c - decodes one token of each of several sessions together, or several of one session, and
 * lets the model's own head guess some. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "device/split_rows.h"
#include "feed_call.h"
#include "in_step.h"
#include "mtp_drafter.h"

/* ---- one token of each of several sessions ---- */

static int check_batch(cb_session *const *s, const int32_t *tokens, int n)
{
    if (n < 1)
        return cb_fail(CB_EARG, "batch: no sessions");
    for (int i = 0; i < n; i++) {
        if (s[i]->model != s[0]->model)
            return cb_fail(CB_EARG, "batch: session %d is of another model", i);
        for (int j = 0; j < i; j++)
            if (s[i] == s[j])
                return cb_fail(CB_EARG, "batch: sessions %d and %d are the same", j, i);
        TRY(cb_feed_check(s[i], tokens + i, 1));
        TRY(cb_session_note_tokens(s[i], tokens + i, 1));
    }
    return CB_OK;
}

static int batch_body(const struct feed_call *c)
{
    return cb_forward_batch(c->s, c->tokens, c->n);
}

/* How many of n sessions go through the layers together: as many rows as the first one's work space
 * has, with activations of the same bits */
static int batch_rows(cb_session *const *s, int n)
{
    const int most = min_int(n, s[0]->chunk);
    int m = 1;

    while (m < most && s[m]->act_bits == s[0]->act_bits)
        m++;
    return m;
}

/* The ids of n sessions, then their tokens */
static int tell_batch(cb_session *const *s, const int32_t *tokens, int n)
{
    int32_t *number;
    int err;

    if (!s[0]->in_step)
        return CB_OK;
    if (!(number = cb_calloc(2 * (size_t)n, sizeof *number)))
        return CB_ENOMEM;
    for (int i = 0; i < n; i++)
        number[i] = s[i]->step_id;
    memcpy(number + n, tokens, (size_t)n * sizeof *tokens);
    err = cb_in_step_begin(s[0], VERB_BATCH, number, 2 * (size_t)n * sizeof *number);
    free(number);
    return err;
}

static int decode_batch(cb_session *const *s, const int32_t *tokens, int n)
{
    for (int i = 0, m; i < n; i += m) {
        struct feed_call c = { s + i, 0, tokens + i, 0, NULL, batch_body, CB_OK };
        m = batch_rows(s + i, n - i);
        c.n = c.n_session = m;
        TRY(cb_session_work_fit_batch(s[i], m));
        TRY(cb_feed_run(&c, 1));
    }
    return CB_OK;
}

int cb_decode_batch(cb_session *const *s, const int32_t *tokens, int n)
{
    TRY(check_batch(s, tokens, n));
    TRY(tell_batch(s, tokens, n));
    return cb_in_step_end(s[0]->in_step, decode_batch(s, tokens, n));
}

/* ---- several tokens of one session ---- */

static int apart_body(const struct feed_call *c)
{
    return cb_forward_one_by_one(c->s[0], c->tokens, c->n);
}

int cb_session_decode_all(cb_session *s, const int32_t *tokens, int n, const float **logits)
{
    struct feed_call c = { &s, 1, tokens, n, NULL, apart_body, CB_OK };
    const char *why = cb_attention_undraftable(&s->attention);
    const int most = cb_attention_max_draft(&s->attention);

    *logits = NULL;
    TRY(cb_feed_check(s, tokens, n));
    if (n > 1 && why)
        return cb_fail(CB_EUNSUPPORTED, "decode: policy %s takes one token at a time: %s",
                       s->policy->m->name, why);
    if (n > most)
        return cb_fail(CB_EARG, "decode: %d tokens at once; %d can be", n, most);
    TRY(cb_session_note_tokens(s, tokens, n));
    TRY(cb_session_work_fit_draft(s, n));
    TRY(cb_in_step_begin(s, VERB_DECODE_ALL, tokens, (size_t)n * sizeof *tokens));
    TRY(cb_in_step_end(s->in_step, cb_feed_run(&c, 1)));
    *logits = s->w.batch_logits;
    return CB_OK;
}

/* ---- drafts by the model's own head ---- */

static int guess_body(const struct feed_call *c)
{
    return cb_mtp_drafter_guess(cb_mtp_drafter_of(c->s[0]), c->n);
}

int cb_session_mtp_guess(struct cb_session *s, int most)
{
    const int32_t number = most;
    struct feed_call c = { .s = &s, .n_session = 1, .n = most, .body = guess_body };

    if (!cb_split_rows_is(s->dev)) /* products are this rank's own */
        return cb_feed_run(&c, 1);
    TRY(cb_in_step_begin(s, VERB_GUESS, &number, sizeof number));
    return cb_in_step_end(s->in_step, cb_feed_run(&c, 1));
}
