/* SPDX-License-Identifier: MIT */
/* model_drafter.h - guesses the next tokens with a second, smaller model of the same vocabulary
 * (speculative decoding, Leviathan et al. 2023). Its session follows the timeline of another one.
 */
#ifndef MODEL_DRAFTER_H
#define MODEL_DRAFTER_H

#include "ctxbank.h"

struct model_drafter {
    cb_session *s; /* the caller's; NULL: there is none, or it has failed */
    int n_vocab;   /* of the model that is guessed for */
    int from;      /* the session's first token is this one of the timeline */
};

/* Guesses up to `most` tokens after tokens[n] -> draft; returns their number. It ends early where
 * the model is unsure. First the model reads what it has missed: a little at once, else for about
 * spare_s seconds a call, with 0 guesses until it has read all; *reads is 1 then. */
int cb_model_drafter_guess(struct model_drafter *d, const int32_t *tokens, int n, int32_t *draft,
                           int most, double spare_s, int *reads);

#endif
