/* SPDX-License-Identifier: MIT */
/* prompt_repeat.h - the feeds in which a model repeats its first prompt, a piece at a time, so that
 * the prompt's slots get scores (attention/scoring/repeat_scores.c). */
#ifndef PROMPT_REPEAT_H
#define PROMPT_REPEAT_H

#include "model/model.h"
#include "policy/policy.h"

struct prompt_repeat;

/* *out is NULL where the policy's plan repeats no prompt. n_ctx: tokens of the longest prompt.
 * CB_EUNSUPPORTED: the model has no vocabulary, or no positions for what is repeated. */
int cb_prompt_repeat_new(const struct cb_model *m, const struct policy *p, int n_ctx,
                         struct prompt_repeat **out);
void cb_prompt_repeat_free(struct prompt_repeat *r);
/* Tokens of the longest feed, and of all, that follow a prompt of n tokens; r may be NULL */
int cb_prompt_repeat_room(const struct prompt_repeat *r, int n);
int64_t cb_prompt_repeat_total(const struct prompt_repeat *r, int n);
/* The feed that repeats the piece of prompt[n] after its first `done` tokens, which were repeated;
 * 0: the first piece. The piece is from..to-1 -> *token, which is r's until the next call; returns
 * the feed's length, 0 if there is no such piece. */
int cb_prompt_repeat_feed(struct prompt_repeat *r, const int32_t *prompt, int n, int done,
                          int *from, int *to, const int32_t **token);

#endif
