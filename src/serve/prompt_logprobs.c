/* SPDX-License-Identifier: MIT */
/* prompt_logprobs.c - how likely the model finds the tokens of a prompt. */
#include "prompt_logprobs.h"

#include "base/err.h"
#include "own_reading.h"

struct scored {
    const int32_t *ids;
    int n, n_top, n_vocab;
    struct job_token *out; /* [n] */
};

static void take_logits(void *arg, int i, const float *logits)
{
    const struct scored *k = arg;

    if (i + 1 < k->n)
        cb_logprobs(logits, k->n_vocab, k->ids[i + 1], k->n_top, &k->out[i + 1]);
}

int cb_prompt_logprobs(struct server *s, const int32_t *ids, int n, int n_top,
                       int (*gone)(void *arg), void *gone_arg, struct job_token *out)
{
    const struct own_reading reading = { s, gone, gone_arg };
    const struct cb_session_params p = { .n_ctx = n };
    struct scored k = { ids, n, n_top, cb_n_vocab(s->m.model), out };
    const struct cb_prefill how = { .logits = take_logits, .logits_arg = &k };
    cb_session *session = NULL;
    int rc;

    pthread_mutex_lock(&s->embedding); /* one such session at a time bounds the memory */
    rc = cb_session_open(s->m.model, &p, &session);
    if (!rc)
        rc = cb_own_reading(&reading, session, ids, n, &how);
    cb_session_close(session);
    pthread_mutex_unlock(&s->embedding);
    return cb_model_status(rc);
}
