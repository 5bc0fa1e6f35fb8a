/* SPDX-License-Identifier: MIT */
/* scores.h - the attention scores of stored tokens, for the hooks of a policy. */
#ifndef SCORES_H
#define SCORES_H

#include "attention.h"

/* Are scores of layer l wanted now, of a prompt or of a decoded token? */
int cb_scores_wanted(const struct attention *a, int l, int prompt);
int cb_scores_open(struct attention *a); /* nothing where the plan wants nothing */
void cb_scores_close(struct attention *a);
size_t cb_scores_bytes(const struct attention *a, int n_most); /* work space for so many slots */

/* Chunk c of a prompt has read the parts in the list of `read`: a itself, or the session that leads
 * it, whose chunk may be longer. lse[c->n][n_head]: their log-sum-exp. */
void cb_scores_chunk(struct attention *a, const struct chunk *c, const struct attention *read,
                     const float *lse);
/* The whole feed, a prompt, is through layer l. */
void cb_scores_prompt(struct attention *a, int l, struct scores *out);
/* Where attention is to leave the logits of the token that is decoded, [n_head][n_ctx], so that its
 * keys are read once; NULL: it cannot. */
float *cb_scores_logits(const struct attention *a, int l);
/* A decoded token has read the whole store, with log-sum-exp lse[n_head]; left: its logits are
 * where cb_scores_logits() said. Returns 1: there are scores for hooks; 0: they have been added to
 * the store's columns. */
int cb_scores_step(struct attention *a, const struct chunk *c, const float *lse, int left,
                   struct scores *out);
/* Scores, a row a query head, are added to the store's columns. */
void cb_scores_sum(struct attention *a, int l, const struct scores *x);

#endif
