/* SPDX-License-Identifier: MIT */
/* cut.c - cuts a timeline back. Rows of keys are dropped; layers that remember without keys go back
 * to a checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "base/err.h"
#include "base/ints.h"
#include "in_step.h"
#include "mixer.h"
#include "session.h"

/* 0 < n < tokens fed */
static int cut(struct cb_session *s, int n)
{
    const char *why = cb_attention_uncut(&s->attention, n);
    const int exact = cb_session_prefill_is_exact(s, n) ? n : 0;

    if (why)
        return cb_fail(CB_EUNSUPPORTED, "truncate: policy %s cannot go back to %d tokens: %s",
                       s->policy->m->name, n, why);
    cb_session_keep_shared(s, n);
    cb_attention_cut(&s->attention, n);
    s->n_prefill_exact = exact;
    return CB_OK;
}

/* ---- layers without keys ---- */

/* Feeds tokens from..to-1 of the timeline as they were fed before: a run of a prompt's at once, and
 * the decoded ones one by one. */
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

/* Goes back to the last checkpoint and computes the tokens between it and n once more. What they
 * leave must be what they left the first time. */
static int cut_to_checkpoint(struct cb_session *s, int n)
{
    const int end = min_int(n, s->bank.prompt_end), exact = min_int(n, s->n_prefill_exact);
    const char *why = cb_attention_uncut(&s->attention, n);
    char *decoded = NULL;
    int32_t *token;
    int at, err;

    if (!why && !cb_session_extends(s))
        why = "a layer remembers without keys, and what it would compute once more depends on "
              "later tokens";
    if (why)
        return cb_fail(CB_EUNSUPPORTED, "truncate: policy %s cannot go back to %d tokens: %s",
                       s->policy->m->name, n, why);
    if (!(token = cb_calloc((size_t)n, sizeof *token)) ||
        !(decoded = cb_calloc((size_t)n, sizeof *decoded))) {
        free(token);
        return CB_ENOMEM;
    }
    memcpy(token, s->token, (size_t)n * sizeof *token);
    memcpy(decoded, s->decoded, (size_t)n * sizeof *decoded);
    err = cb_device_lock(s->dev);
    if (!err) {
        at = cb_states_cut(&s->states, n);
        cb_session_keep_shared(s, at);
        cb_attention_cut(&s->attention, at);
        s->n_prefill_exact = min_int(exact, at);
        cb_device_unlock(s->dev);
        err = feed_again(s, token + at, decoded + at, n - at);
    }
    s->bank.prompt_end = err ? s->bank.prompt_end : end;
    free(token);
    free(decoded);
    return err;
}

/* Takes back the last tokens of a draft: the layers take those before n once more. */
static int undraft(struct cb_session *s, int n)
{
    const int left = n - (s->bank.n_seen - s->states.draft);

    TRY(cut(s, n));
    cb_states_undraft(&s->states);
    for (int l = 0; left && l < s->model->hp.n_layer; l++)
        if (s->model->layer[l].mixer)
            cb_mixer_again(s, l, left);
    return cb_device_wait(s->dev);
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
    if (s->busy || (s->bank.n_seen && cb_in_step_tell(s, VERB_CUT, &(int32_t){ 0 }, 1)))
        return;
    clear(s);
}

int cb_session_truncate(cb_session *s, int n)
{
    int err = CB_OK;

    TRY(cb_session_check_idle(s));
    if (n < 0 || n > s->bank.n_seen)
        return cb_fail(CB_EARG, "truncate: %d tokens of %d", n, s->bank.n_seen);
    if (n == s->bank.n_seen)
        return CB_OK;
    TRY(cb_in_step_tell(s, VERB_CUT, &(int32_t){ n }, 1));
    if (n && cb_states_is(&s->states) && n < s->bank.n_seen - s->states.draft) {
        TRY(cut_to_checkpoint(s, n));
        memset(s->w.logits, 0, (size_t)s->model->hp.n_vocab * sizeof *s->w.logits);
        return CB_OK;
    }
    TRY(cb_device_lock(s->dev)); /* the device unpacks prepacked blocks into rows */
    if (n)
        err = s->states.draft ? undraft(s, n) : cut(s, n);
    cb_device_unlock(s->dev);
    if (!n)
        clear(s);
    if (!err)
        memset(s->w.logits, 0, (size_t)s->model->hp.n_vocab * sizeof *s->w.logits);
    return err;
}
