/* SPDX-License-Identifier: MIT */
/* assistant.h - a head for later tokens in a file of its own (Gemma 4's assistant models). It
 * guesses for another model, its target: its layers have queries alone, and read the rows of the
 * target's last layers. With e the target's embedding of the last token, and h the target's state
 * before that token after the target's last norm:
 *   x = join [e, h];  layers, at the last token's position;  y = norm(x)
 *   logits = embd y;  post y takes the place of h for the guess after this one
 */
#ifndef ASSISTANT_H
#define ASSISTANT_H

#include "binder.h"

struct assistant {
    int n_target;             /* n_embd of the target */
    struct weight join, post; /* [n_embd][2 * n_target], [n_target][n_embd] */
};

/* Binds what it has beside layers -> m->assistant; nothing for other models. */
int cb_assistant_bind(struct binder *b);
void cb_assistant_free(struct assistant *x); /* NULL is allowed */
/* Matrix i; NULL past the last */
struct weight *cb_assistant_weight(struct assistant *x, int i);

/* The target's layer whose rows layer l of the assistant reads: the last one with a window, or the
 * last one without; -1: there is none */
int cb_assistant_reads(const struct cb_model *m, int l, const struct cb_model *target);
/* CB_EARG, with the first difference, where the assistant is not the target's. */
int cb_assistant_check(const struct cb_model *m, const struct cb_model *target);

#endif
