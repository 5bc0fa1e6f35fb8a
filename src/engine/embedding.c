/* SPDX-License-Identifier: MIT */
/* embedding.c - pools the states of a text's tokens. */
#include "embedding.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "session.h"

static int choose(const cb_model *model, enum cb_pooling asked, enum cb_pooling *out)
{
    const int own = model->hp.pooling;

    if (asked < CB_POOL_MODEL || asked > CB_POOL_LAST)
        return cb_fail(CB_EARG, "pooling %d: unknown", (int)asked);
    if (asked == CB_POOL_MODEL && own == POOL_RANK)
        return cb_fail(CB_EUNSUPPORTED, "pooling: the model ranks texts, it embeds none");
    *out = asked ? asked : own ? (enum cb_pooling)own : CB_POOL_LAST;
    return CB_OK;
}

int cb_embedding_begin(struct embedding *e, const cb_model *model, const struct cb_embedding *how)
{
    *e = (struct embedding){ .normalize = how->normalize, .n_embd = model->hp.n_embd };
    TRY(choose(model, how->pooling, &e->pooling));
    e->sum = cb_calloc((size_t)e->n_embd, sizeof *e->sum);
    return e->sum ? CB_OK : CB_ENOMEM;
}

static void take_state(void *arg, int i, const float *state)
{
    struct embedding *e = arg;

    if (e->pooling == CB_POOL_CLS && i)
        return;
    for (int j = 0; j < e->n_embd; j++)
        e->sum[j] = (e->pooling == CB_POOL_MEAN ? e->sum[j] : 0) + (double)state[j];
    e->n_tok++;
}

struct cb_prefill cb_embedding_prefill(struct embedding *e)
{
    return (struct cb_prefill){ .states = take_state, .states_arg = e };
}

void cb_embedding_end(const struct embedding *e, float *out)
{
    double by = e->pooling == CB_POOL_MEAN ? 1.0 / e->n_tok : 1, squares = 0;

    for (int j = 0; j < e->n_embd; j++)
        squares += e->sum[j] * e->sum[j];
    if (e->normalize)
        by = squares > 0 ? 1 / sqrt(squares) : 0;
    for (int j = 0; j < e->n_embd; j++)
        out[j] = (float)(e->sum[j] * by);
}

void cb_embedding_free(struct embedding *e)
{
    free(e->sum);
    e->sum = NULL;
}

int cb_session_embed(cb_session *s, const int32_t *tokens, int n, const struct cb_embedding *how,
                     float *out)
{
    static const struct cb_embedding defaults = { 0 };
    struct cb_prefill read;
    struct embedding e;
    int err;

    TRY(cb_session_check_idle(s));
    err = cb_embedding_begin(&e, s->model, how ? how : &defaults);
    if (!err) {
        cb_session_clear(s);
        read = cb_embedding_prefill(&e);
        err = cb_session_prefill(s, tokens, n, &read);
    }
    if (!err)
        cb_embedding_end(&e, out);
    cb_embedding_free(&e);
    return err;
}
