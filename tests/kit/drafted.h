/* SPDX-License-Identifier: MIT */
/* drafted.h - a session that decodes drafts beside one, of the same text, that decodes token by
 * token: the bits are the same. */
#ifndef DRAFTED_H
#define DRAFTED_H

#include "ctxbank.h"

int32_t cb_drafted_token(int i); /* of a text that is not the model's own */

/* logits[n_vocab] are those of s, to the bit; what and at: for the message */
void cb_drafted_same_logits(const cb_session *s, const float *logits, const char *what, int at);
/* Decodes n tokens or a few more, in calls of 1 to 16 in `all`. Closes both sessions. */
void cb_drafted_at_once(cb_session *one, cb_session *all, int n);

struct drafted_text {
    int most;          /* tokens of a draft, as cb_speculation_new() takes them */
    int n;             /* tokens of the text */
    cb_session *draft; /* guesses too; or NULL */
    struct cb_sampler_params pick;
};

/* The text of s with drafts is that of `one` without. Closes both sessions. */
struct cb_speculation_counts cb_drafted_text(cb_session *one, cb_session *s,
                                             const struct drafted_text *x);

#endif
