/* SPDX-License-Identifier: MIT */
/* token_pruning.h - prompts of which the layers compute fewer and fewer tokens. */
#ifndef TOKEN_PRUNING_H
#define TOKEN_PRUNING_H

#include "attention.h"

/* Allocates a->pass; does nothing where the plan has no such layer. */
int cb_token_pruning_open(struct attention *a);

/* Does a layer leave tokens of a prompt out of later layers? Then call the second after
 * cb_attend_end() of a prompt of which layer l has computed n tokens: those that later layers
 * compute -> *row, ascending numbers among the n; their count, n if all. */
int cb_attention_narrows(const struct attention *a);
/* Does a layer compute some tokens of a prompt only, since others are left out or on other ranks?
 */
int cb_attention_is_partial(const struct attention *a);
int cb_attend_narrow(struct attention *a, int l, int n, const int **row);

#endif
