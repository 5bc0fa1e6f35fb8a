/* SPDX-License-Identifier: MIT */
/* in_step.h - one model on several ranks: rank 0 has the user, and tells the others each call on a
 * session before it makes the call itself. Sessions, forks and batches of the model exist on all
 * ranks; calls that only look are not told. Calls may come from several threads of rank 0. */
#ifndef IN_STEP_H
#define IN_STEP_H

#include "ranks/ranks.h"
#include "session.h"

enum verb {
    VERB_OPEN,
    VERB_CLOSE,
    VERB_FORK,
    VERB_LOAD,
    VERB_BEGIN,
    VERB_STEP,
    VERB_CANCEL,
    VERB_DECODE,
    VERB_DECODE_ALL,
    VERB_BATCH,
    VERB_CUT,
    VERB_GUESS,
    VERB_GIVE,
    VERB_FILL,
    VERB_PLAN,
    VERB_PING,
    VERB_END
};

/* ---- the model ---- */

/* Call on every rank of the team, which outlives the model, when the model is open and has no
 * sessions. From now on its calls are made in step: where its matrices are split
 * (cb_model_open_over), each rank has the whole context, unless `both` is 1; else the context is
 * dealt out. Fails on all ranks, with the same message, where they differ in version or model. A
 * team of one changes nothing. */
int cb_in_step_open(cb_model *m, struct ranks *team, int both);
/* Call when the model has no sessions, before it is closed. NULL is allowed. */
void cb_in_step_close(cb_model *m);

/* ---- a call; without a team these do nothing ---- */

/* On rank 0: tells the others that the call comes, with data[n]. Once it has not failed, end comes:
 * it returns err. */
int cb_in_step_begin(const struct cb_session *s, enum verb verb, const void *data, size_t n);
int cb_in_step_end(struct in_step *x, int err); /* of the session */
/* The same of a prompt, with what s->how asks for: other ranks compute it too, as products may be
 * dealt out. */
int cb_in_step_begin_prompt(const struct cb_session *s, const int32_t *tokens, int n);
/* The same of a call that makes a session */
int cb_in_step_begin_open(cb_model *m, const struct cb_session_params *p, const struct method *own);
int cb_in_step_begin_load(cb_model *m, const char *path, int n_ctx, const char *policy);
/* All ranks learn whether it has been made everywhere: s on this one, if err is 0. Fails on all of
 * them, or on none; the session gets its id. Then the call ends. */
int cb_in_step_end_open(cb_model *m, struct cb_session *s, int err);
void cb_in_step_forget(struct cb_session *s); /* it is being closed */

/* CB_EUNSUPPORTED on several ranks; what: the call, for the message */
int cb_in_step_alone(const struct cb_session *s, const char *what);
/* 0: nobody reads the logits of this rank, whose products are its own */
int cb_in_step_reads_logits(const struct cb_session *s);
/* 1: what this rank calls now comes from its own caller, or from a call in progress, which all make
 * alike; 0: it is a call that rank 0 has told */
int cb_in_step_leads(const struct cb_session *s);
/* 1: all that the session remembers can be saved, and filled in from a file */
int cb_in_step_has_bank(const struct cb_session *s);

/* ---- follow.c ---- */

/* On the other ranks: makes the calls that rank 0 tells, until it ends. */
int cb_in_step_follow(cb_model *m);
/* On rank 0: ends it. */
int cb_in_step_finish(cb_model *m);

/* A rank's share of a planned session */
struct rank_plan {
    char host[RANKS_HOST];
    struct cb_memory memory;
    int32_t one_copy;    /* ranks of its machine that read one copy of the weights, with it */
    int32_t messages;    /* a decoded token; -1: they depend on the token */
    uint64_t sent_bytes; /* a decoded token, by this rank */
};
/* cb_session_plan() of each rank -> plan[ranks], on rank 0 */
int cb_session_plan_ranks(struct cb_session *s, int n_prompt, int n_gen, struct rank_plan *plan);
/* To time them: n messages as layers of a split context send, with `bytes` bytes of each rank */
int cb_session_ping(struct cb_session *s, size_t bytes, int n);

#endif
