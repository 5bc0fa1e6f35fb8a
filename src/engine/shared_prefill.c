/* SPDX-License-Identifier: MIT */
/* shared_prefill.c - one prefill for many policies. While a prompt attends densely, its keys,
 * values and queries do not depend on the policy. One session computes them; the others store them
 * and gather scores, and each compacts a layer as soon as it is done. Attention is causal, so a
 * follower's prompt may also end earlier. */
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"

#include "base/err.h"
#include "in_step.h"
#include "session.h"

int cb_session_can_follow(const struct cb_session *f, const struct cb_session *lead)
{
    return f->model == lead->model && !f->in_step && f->chunk == lead->chunk &&
           f->bank.type_k == lead->bank.type_k && f->bank.type_v == lead->bank.type_v &&
           !f->bank.n_seen && !f->bank.n_feed && !lead->bank.n_seen && !lead->bank.n_feed &&
           !cb_attention_has(&f->attention, READ_STATE) && cb_attention_is_dense(&f->attention) &&
           cb_attention_is_dense(&lead->attention);
}

static int check(const struct cb_session *lead, struct cb_session *const *follower, const int *upto,
                 int n, int n_tok)
{
    TRY(cb_session_check_callback(lead));
    if (n)
        TRY(cb_in_step_alone(lead, "shared prefill"));
    for (int i = 0; i < n; i++) {
        if (upto && (upto[i] < 1 || upto[i] > n_tok))
            return cb_fail(CB_EARG, "prefill: the first %d of %d tokens", upto[i], n_tok);
        if (!cb_session_can_follow(follower[i], lead))
            return cb_fail(CB_EARG, "prefill: sessions of different kinds cannot share it");
        if (n_tok > follower[i]->bank.n_ctx)
            return cb_fail(CB_EFULL, "context: %d tokens do not fit into %d", n_tok,
                           follower[i]->bank.n_ctx);
    }
    return CB_OK;
}

static void arrive(struct cb_session *f, const struct cb_session *lead, int err)
{
    const size_t bytes = (size_t)f->model->hp.n_vocab * sizeof *f->w.logits;
    const int n = f->bank.n_feed;

    f->bank.n_feed = 0;
    f->attention.leader = NULL;
    if (err) {
        cb_session_clear(f);
        return;
    }
    f->bank.n_seen = f->bank.prompt_end = n;
    if (f->bank.n_seen == lead->bank.n_seen)
        memcpy(f->w.logits, lead->w.logits, bytes);
    else
        memset(f->w.logits, 0, bytes);
}

int cb_session_prefill_shared(struct cb_session *lead, struct cb_session *const *follower,
                              const int *upto, int n, const int32_t *tokens, int n_tok,
                              const struct cb_prefill *how)
{
    struct attention **list;
    int err = CB_OK;

    TRY(check(lead, follower, upto, n, n_tok));
    if (!(list = cb_calloc((size_t)n, sizeof *list)))
        return CB_ENOMEM;
    for (int i = 0; i < n && !err; i++)
        err = cb_session_note_tokens(follower[i], tokens, upto ? upto[i] : n_tok);
    if (err) {
        free(list);
        return err;
    }
    for (int i = 0; i < n; i++) {
        list[i] = &follower[i]->attention;
        list[i]->leader = &lead->attention;
        follower[i]->bank.decoding = 0;
        follower[i]->bank.n_feed = upto ? upto[i] : n_tok;
    }
    lead->attention.follower = list;
    lead->attention.n_follower = n;
    err = cb_session_prefill(lead, tokens, n_tok, how);
    lead->attention.follower = NULL;
    lead->attention.n_follower = 0;
    for (int i = 0; i < n; i++)
        arrive(follower[i], lead, err);
    free(list);
    return err;
}
