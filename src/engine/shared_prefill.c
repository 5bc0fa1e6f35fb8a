/* SPDX-License-Identifier: MIT */
/* shared_prefill.c - one prefill for many policies: while a prompt attends densely, its keys,
 * values and queries do not depend on what a policy will keep. One session computes them, the
 * others store and measure, and each compacts a layer as soon as it is done. As attention is
 * causal, a follower may also stop earlier. */
#include <string.h>

#include "attention/sparse_prefill.h"
#include "base/err.h"

/* does the prompt attend to all of itself, with keys and values of each layer's own? */
static int is_dense(const struct cb_session *s)
{
    if (cb_prefill_is(s))
        return 0;
    for (int l = 0; l < s->model->hp.n_layer; l++) {
        const struct layer_plan *p = &s->plan[l];
        if (p->kv_of != l || p->raw_keys || p->window || p->read.far_as)
            return 0;
    }
    return 1;
}

int cb_session_can_follow(const struct cb_session *f, const struct cb_session *lead)
{
    return f->model == lead->model && f->chunk == lead->chunk && f->type_k == lead->type_k &&
           f->type_v == lead->type_v && !f->n_seen && !lead->n_seen && is_dense(f) &&
           is_dense(lead);
}

static int check(const struct cb_session *lead, struct cb_session *const *follower, const int *upto,
                 int n, int n_tok)
{
    for (int i = 0; i < n; i++) {
        if (upto && (upto[i] < 1 || upto[i] > n_tok))
            return cb_fail(CB_EARG, "prefill: the first %d of %d tokens", upto[i], n_tok);
        if (!cb_session_can_follow(follower[i], lead))
            return cb_fail(CB_EARG, "prefill: sessions of different kinds cannot share it");
        if (n_tok > follower[i]->n_ctx)
            return cb_fail(CB_EFULL, "context: %d tokens do not fit into %d", n_tok,
                           follower[i]->n_ctx);
    }
    return CB_OK;
}

static void arrive(struct cb_session *f, int err)
{
    const struct cb_session *lead = f->led_by;
    const size_t bytes = (size_t)f->model->hp.n_vocab * sizeof *f->w.logits;

    f->n_seen = f->ctx_end = f->n_feed;
    f->n_feed = 0;
    f->led_by = NULL;
    if (err)
        cb_session_clear(f);
    else if (f->n_seen == lead->n_seen)
        memcpy(f->w.logits, lead->w.logits, bytes);
    else
        memset(f->w.logits, 0, bytes);
}

int cb_session_prefill_shared(struct cb_session *lead, struct cb_session *const *follower,
                              const int *upto, int n, const int32_t *tokens, int n_tok,
                              const struct cb_prefill *how)
{
    int err;

    TRY(check(lead, follower, upto, n, n_tok));
    for (int i = 0; i < n; i++) {
        follower[i]->decoding = 0;
        follower[i]->n_feed = upto ? upto[i] : n_tok;
        follower[i]->led_by = lead;
    }
    lead->follower = follower;
    lead->n_follower = n;
    err = cb_session_prefill(lead, tokens, n_tok, how);
    lead->follower = NULL;
    lead->n_follower = 0;
    for (int i = 0; i < n; i++)
        arrive(follower[i], err);
    return err;
}
