/* SPDX-License-Identifier: MIT */
/* in_step.h - one session on several ranks: rank 0 has the user, and tells the others each call
 * that computes before it makes the call itself. */
#ifndef IN_STEP_H
#define IN_STEP_H

#include "ranks/ranks.h"
#include "session.h"

enum verb { VERB_PREFILL, VERB_DECODE, VERB_DECODE_ALL, VERB_CUT, VERB_PLAN, VERB_END };

/* Splits an empty session over the ranks of the team, which outlives it. Call on every rank. Where
 * the model's matrices are split (cb_model_open_over), each rank has the whole context; else the
 * context is dealt out. Fails on all ranks, with the same message, where they differ in version,
 * model or settings. A team of one changes nothing. */
int cb_session_split(struct cb_session *s, struct ranks *team);
/* On rank 0: tells the others that verb(number[n]) comes. Elsewhere, or without a team, it does
 * nothing. */
int cb_in_step_tell(const struct cb_session *s, enum verb verb, const int32_t *number, int n);
/* CB_EUNSUPPORTED on several ranks; what: the call, for the message */
int cb_in_step_alone(const struct cb_session *s, const char *what);

/* ---- follow.c ---- */

/* On the other ranks: makes the calls that rank 0 tells, until it ends. */
int cb_session_follow(struct cb_session *s);

/* A rank's share of a planned session */
struct rank_plan {
    char host[RANKS_HOST];
    struct cb_memory memory;
    int32_t messages;    /* a decoded token; -1: they depend on the token */
    uint64_t sent_bytes; /* a decoded token, by this rank */
};
/* cb_session_plan() of each rank -> plan[ranks], on rank 0 */
int cb_session_plan_ranks(struct cb_session *s, int n_prompt, int n_gen, struct rank_plan *plan);

#endif
