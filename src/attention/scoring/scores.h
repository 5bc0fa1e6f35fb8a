/* SPDX-License-Identifier: MIT */
/* scores.h - the attention scores of stored tokens, for the hooks of a policy. */
#ifndef SCORES_H
#define SCORES_H

#include "attention/attention.h"

/* Does the policy now want scores of layer l, for a prompt (1) or for a decoded token (0)? */
int cb_scores_wanted(const struct attention *a, int l, int prompt);
int cb_scores_open(struct attention *a); /* does nothing where the plan wants no scores */
void cb_scores_close(struct attention *a);
size_t cb_scores_bytes(const struct attention *a, int n_most); /* work space for n_most slots */

/* Adds the scores of chunk c of a prompt, from the parts in the list of `read`: a itself, or its
 * leader, whose chunk may be longer. lse[c->n][n_head]: the parts' log-sum-exp. */
void cb_scores_chunk(struct attention *a, const struct chunk *c, const struct attention *read,
                     const float *lse);
/* Call when a prompt has gone through layer l. */
void cb_scores_prompt(struct attention *a, int l, struct scores *out);
/* Buffer in which attention is to leave the logits of the token being decoded, [n_head][n_ctx], so
 * that its keys are read once. NULL: the layer has a window, or is not read as it is. */
float *cb_scores_logits(const struct attention *a, int l);
/* Scores of a decoded token that has read the whole store, with log-sum-exp lse[n_head]. left: its
 * logits are in the buffer of cb_scores_logits(). Returns 1: *out holds scores for hooks; 0: the
 * scores were added to the store's columns. */
int cb_scores_step(struct attention *a, const struct chunk *c, const float *lse, int left,
                   struct scores *out);
/* Adds scores, a row a query head, to the store's columns. */
void cb_scores_sum(struct attention *a, int l, const struct scores *x);

#endif
