/* SPDX-License-Identifier: MIT */
/* generation.c - cb_session_generate(): the loop of sampling and decoding, for programs that need
 * nothing but the text. */
#include "base/err.h"
#include "session.h"

struct loop {
    cb_session *session;
    cb_sampler *sampler;
    cb_detokenizer *detok;
    cb_text_fn text;
    void *arg;
};

/* Generates one token. Returns 0: continue, 1: the token was the last one, 2: there is none. */
static int step(const struct loop *lp)
{
    const int32_t id = cb_sampler_pick(lp->sampler, cb_session_logits(lp->session));
    const char *s;
    size_t n;
    int stop;

    TRY(id); /* a grammar can leave no token */
    if (cb_token_is_end(lp->session->model, id) ||
        cb_session_len(lp->session) == cb_session_n_ctx(lp->session))
        return 2;
    TRY(cb_session_decode(lp->session, id));
    cb_sampler_accept(lp->sampler, id);
    TRY(cb_detokenizer_push(lp->detok, id, &s, &n));
    stop = n && lp->text && lp->text(lp->arg, s, n);
    return stop ? 1 : 0;
}

static int steps(const struct loop *lp, int most)
{
    const char *s;
    size_t n;
    int done = 0, rc = 0;

    while (done < most && !rc) {
        rc = step(lp);
        done += rc == 0 || rc == 1;
    }
    if (rc < 0)
        return rc;
    cb_detokenizer_end(lp->detok, &s, &n);
    if (n && lp->text)
        lp->text(lp->arg, s, n);
    return done;
}

int cb_session_generate(cb_session *s, cb_sampler *sampler, int n, cb_text_fn text, void *arg)
{
    struct loop lp = { s, sampler, NULL, text, arg };
    int rc;

    if (n < 0)
        return cb_fail(CB_EARG, "generate: %d tokens", n);
    if (!cb_session_len(s))
        return cb_fail(CB_EARG, "generate: the session is empty");
    TRY(cb_detokenizer_new(s->model, 0, &lp.detok));
    rc = steps(&lp, n);
    cb_detokenizer_free(lp.detok);
    return rc;
}
