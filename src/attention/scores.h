/* SPDX-License-Identifier: MIT */
/* scores.h - attention score per stored entry, for the hooks of a policy. */
#ifndef MEASURE_H
#define MEASURE_H

#include "session.h"

int cb_wants(const struct want *w, int prompt);
int cb_scores_open(struct cb_session *s); /* nothing where the plan wants nothing */
void cb_scores_close(struct cb_session *s);
size_t cb_scores_bytes(const struct cb_session *s, int n_most); /* work space for so many slots */

/* A chunk of a prompt that layer l has just attended to; a->lse is set. */
void cb_scores_chunk(struct cb_session *s, int l, const struct attn *a, int pos0, int pos_end);
/* The whole feed, a prompt, is through layer l. */
void cb_scores_prompt(struct cb_session *s, int l, struct scores *out);
/* Where attention is to leave the logits of the token that is decoded, [n_head][n_ctx], so that its
 * keys are read once; NULL: it cannot. */
float *cb_scores_logits(const struct cb_session *s, int l);
/* That token: `a` is its attention over the whole store, with lse. 1: there are scores for hooks;
 * 0: they have been added to the store's columns */
int cb_scores_step(struct cb_session *s, int l, const struct attn *a, struct scores *out);
/* Scores, a row a query head, are added to the store's columns. */
void cb_scores_sum(struct cb_session *s, int l, const struct scores *x);

#endif
