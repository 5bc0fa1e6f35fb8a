/* SPDX-License-Identifier: MIT */
/* logits.h - from the states after the last layer to logits. */
#ifndef LOGITS_H
#define LOGITS_H

#include "session.h"

/* x[n], states after the last layer -> logits[n][n_vocab] */
int cb_logits_of(struct cb_session *s, const float *x, int n, int bits, float *logits);
/* x of a generated token -> its largest logits, by output-head pruning */
int cb_logits_top(struct cb_session *s, const float *x, float *logits);
/* A weight or a result that is not finite must not become a text: CB_EFORMAT */
int cb_logits_check(const struct cb_session *s, const float *x, size_t n);

/* Hands the logits of tokens logits_from..n-1, or the states of all tokens, to the caller, a batch
 * at a time. */
int cb_logits_all(struct cb_session *s, int n, const struct cb_prefill *how);
int cb_logits_states(struct cb_session *s, int n, const struct cb_prefill *how);

/* Fetches the rows of a dealt-out prompt that other ranks have computed, or the last row alone
 * where the caller asks for no more */
int cb_logits_fetch(struct cb_session *s, const struct cb_prefill *how);
/* After a feed: the logits that follow its last row, or what the caller asks for of all rows */
int cb_logits_give(struct cb_session *s, const float *last, const struct cb_prefill *how);

#endif
