/* SPDX-License-Identifier: MIT */
/* assistant_drafter.h - guesses the next tokens with an assistant (model/assistant.h): a session of
 * it attends to the rows of the session that it guesses for, and holds none of its own. */
#ifndef ASSISTANT_DRAFTER_H
#define ASSISTANT_DRAFTER_H

#include "session.h"

/* Does the session belong to an assistant? */
static inline int cb_assistant_has(const struct cb_session *s)
{
    return s->model->assistant != NULL;
}

/* Can session s of an assistant guess for session `of` of a model that it is for? CB_EARG,
 * CB_EUNSUPPORTED: no, and why */
int cb_assistant_can(const struct cb_session *s, const struct cb_session *of);
/* From now on `of` keeps the states of its last tokens, from which guesses begin. CB_ENOMEM */
int cb_assistant_follow(struct cb_session *of);
/* Guesses up to `most` tokens after the noted one at of->bank.n_seen -> draft; returns their
 * number, 0 where the state before that token is not known, or a negative status. */
int cb_assistant_guess(struct cb_session *s, const struct cb_session *of, int32_t *draft, int most);

#endif
