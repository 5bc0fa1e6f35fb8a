/* SPDX-License-Identifier: MIT */
/* follow.c - the ranks besides rank 0: each makes the calls that rank 0 tells it. */
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "base/err.h"
#include "in_step.h"
#include "orders.h"

/* ---- the plan ---- */

/* Every rank plans its own share, and all have all of them. */
static int plan(struct cb_session *s, int n_prompt, int n_gen, struct rank_plan *all)
{
    struct rank_plan mine = { .host = "" };
    const char *host = cb_ranks_host(s->team, cb_ranks_me(s->team));
    int messages;

    TRY(cb_session_plan(s, n_prompt, n_gen, &mine.memory));
    memcpy(mine.host, host, strlen(host) + 1);
    cb_context_split_traffic(&s->attention, &messages, &mine.sent_bytes);
    mine.messages = messages;
    return cb_ranks_share(s->team, &mine, sizeof mine, all);
}

int cb_session_plan_ranks(struct cb_session *s, int n_prompt, int n_gen, struct rank_plan *all)
{
    const int32_t number[] = { n_prompt, n_gen };

    TRY(cb_in_step_tell(s, VERB_PLAN, number, 2));
    return plan(s, n_prompt, n_gen, all);
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
    int err = all ? plan(s, number[0], number[1], all) : CB_ENOMEM;

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
