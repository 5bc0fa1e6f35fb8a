/* SPDX-License-Identifier: MIT */
/* mtp_drafter.h - guesses the next tokens with the head for later tokens that the model's file has
 * (model/mtp_head.h). The head's layer has keys and values of its own: row t is made of token t + 1
 * and of the state that the model's last layer left at token t. */
#ifndef MTP_DRAFTER_H
#define MTP_DRAFTER_H

#include "session.h"

struct mtp_drafter {
    struct follower f;
    struct cb_session *s;  /* the head's */
    struct cb_session *of; /* whose tokens it guesses */
    float *state;          /* [MTP_STATES][n_embd] of tokens at, at + 1, .. */
    int n;                 /* of these: the states that the head has not taken yet */
    int at;
    int base; /* the head's first row is that of token `base`: none of earlier ones are known */
    int32_t draft[MOST_DRAFT];
};

enum { MTP_STATES = 64 };

/* Makes the session's follower, if it has none and its model has a head that can be used. CB_ENOMEM
 */
int cb_mtp_drafter_open(struct cb_session *of);
/* NULL: it has none. Models without such a head may have another follower. */
static inline struct mtp_drafter *cb_mtp_drafter_of(const struct cb_session *s)
{
    return s->model->mtp ? (struct mtp_drafter *)s->follower : NULL;
}
uint64_t cb_mtp_drafter_bytes(const struct mtp_drafter *x); /* beside the head's session */
/* Guesses up to `most` tokens after the noted one at bank.n_seen -> x->draft; returns their number.
 * A failure ends drafts, not the text. Call it with the device locked, in its team. */
int cb_mtp_drafter_guess(struct mtp_drafter *x, int most);

#endif
