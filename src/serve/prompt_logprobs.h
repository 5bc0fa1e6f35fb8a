/* SPDX-License-Identifier: MIT */
/* prompt_logprobs.h - how likely the model finds the tokens of a prompt, each after those before.
 */
#ifndef PROMPT_LOGPROBS_H
#define PROMPT_LOGPROBS_H

#include "exchange.h"
#include "logprobs.h"

/* ids[n] -> out[n], with the n_top likeliest tokens in each place; out[0] is left as it is: nothing
 * comes before it. Computed by this thread, in a session of its own with policy full, while answers
 * continue. CB_ECANCEL: gone() said so, or the server goes down. */
int cb_prompt_logprobs(struct server *s, const int32_t *ids, int n, int n_top,
                       int (*gone)(void *arg), void *gone_arg, struct job_token *out);

#endif
