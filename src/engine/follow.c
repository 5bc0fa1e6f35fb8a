/* SPDX-License-Identifier: MIT */
/* follow.c - the ranks besides rank 0: each makes the calls that rank 0 tells it. */
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "base/err.h"
#include "device/split_rows.h"
#include "in_step.h"
#include "orders.h"

/* ---- the plan ---- */

/* Rows that a rank sends for products of n_out rows, as all ranks send alike */
static uint64_t sent(const struct cb_session *s, int n_out)
{
    return sizeof(float) * (uint64_t)cb_split_rows_most(s->dev, n_out);
}

/* Queries, keys and values come in one message, then the output, the hidden ones, and the last
 * product of a layer; at the end, the logits. */
static void tensor_traffic(const struct cb_session *s, int *messages, uint64_t *bytes)
{
    const struct cb_model *m = s->model;

    *messages = 1;
    *bytes = sent(s, m->hp.n_vocab);
    for (int l = 0; l < m->hp.n_layer; l++) {
        const struct layer *y = &m->layer[l];
        if (y->moe || y->mixer || y->latent || y->input || y->gated || y->ngrams) {
            *messages = -1;
            *bytes = 0;
            return;
        }
        *messages += 4;
        *bytes += sent(s, y->q.n_out) + sent(s, y->k.n_out) + sent(s, y->v.n_out) +
                  sent(s, y->o.n_out) + sent(s, y->ffn.up.n_out) + sent(s, y->ffn.down.n_out);
    }
}

/* Every rank plans its own share, and all have all of them. */
static int plan_ranks(struct cb_session *s, int n_prompt, int n_gen, struct rank_plan *all)
{
    struct rank_plan mine = { .host = "" };
    const char *host = cb_ranks_host(s->team, cb_ranks_me(s->team));
    int messages;

    TRY(cb_session_plan(s, n_prompt, n_gen, &mine.memory));
    memcpy(mine.host, host, strlen(host) + 1);
    if (cb_split_rows_is(s->dev))
        tensor_traffic(s, &messages, &mine.sent_bytes);
    else
        cb_context_split_traffic(&s->attention, &messages, &mine.sent_bytes);
    mine.messages = messages;
    return cb_ranks_share(s->team, &mine, sizeof mine, all);
}

int cb_session_plan_ranks(struct cb_session *s, int n_prompt, int n_gen, struct rank_plan *all)
{
    const int32_t number[] = { n_prompt, n_gen };

    TRY(cb_in_step_tell(s, VERB_PLAN, number, 2));
    return plan_ranks(s, n_prompt, n_gen, all);
}

/* ---- the calls ---- */

static int prefill(struct cb_session *s, const int32_t *number, int n)
{
    return cb_session_prefill(s, number, n, NULL);
}

static int decode(struct cb_session *s, const int32_t *number, int n)
{
    (void)n;
    return cb_session_decode(s, number[0]);
}

static int decode_all(struct cb_session *s, const int32_t *number, int n)
{
    const float *logits;
    return cb_session_decode_all(s, number, n, &logits);
}

static int cut(struct cb_session *s, const int32_t *number, int n)
{
    (void)n;
    return cb_session_truncate(s, number[0]);
}

static int plan_with(struct cb_session *s, const int32_t *number, int n)
{
    struct rank_plan *all = cb_calloc((size_t)cb_ranks_n(s->team), sizeof *all);
    int err = all ? plan_ranks(s, number[0], number[1], all) : CB_ENOMEM;

    (void)n;
    free(all);
    return err;
}

typedef int (*call_fn)(struct cb_session *s, const int32_t *number, int n);
static const call_fn call_of[] = {
    [VERB_PREFILL] = prefill, [VERB_DECODE] = decode,  [VERB_DECODE_ALL] = decode_all,
    [VERB_CUT] = cut,         [VERB_PLAN] = plan_with,
};

/* A prompt's tokens come in a message of their own. */
static int make_long(struct cb_session *s, const struct order *o)
{
    int32_t *number = cb_calloc((size_t)o->n, sizeof *number);
    int err =
        number ? cb_ranks_tell(s->team, 0, number, (size_t)o->n * sizeof *number, 0) : CB_ENOMEM;

    if (!err)
        err = call_of[o->verb](s, number, o->n);
    free(number);
    return err;
}

int cb_session_follow(struct cb_session *s)
{
    struct order o;

    for (;;) {
        TRY(cb_ranks_tell(s->team, 0, &o, sizeof o, 1));
        if (o.verb == VERB_END)
            return CB_OK;
        TRY(o.n > ORDER_NUMBERS ? make_long(s, &o) : call_of[o.verb](s, o.number, o.n));
    }
}
