/* SPDX-License-Identifier: MIT */
/* scores.h - the attention scores of stored tokens, for the hooks of a policy: the space that they
 * lie in, those of a decoded token, and what all scorings of prompts do with sums of weights. */
#ifndef SCORES_H
#define SCORES_H

#include "attention/attention.h"

/* A session has it where its plan wants scores. */
struct score_space {
    float *score;       /* [n_head][n_ctx] */
    float *rows, *pool; /* [n_row][n_ctx] */
    struct kv_run *run; /* [n_head] */
};

/* Does the policy now want scores of layer l, for a prompt (1) or for a decoded token (0)? */
int cb_scores_wanted(const struct attention *a, int l, int prompt);
int cb_scores_open(struct attention *a); /* does nothing where the plan wants no scores */
size_t cb_scores_bytes(const struct attention *a, int n_most); /* work space for n_most slots */

/* ---- a decoded token ---- */

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

/* ---- for scorings of prompts ---- */

/* Slots that a KV head will hold at the end of the prompt that c is of */
int cb_scores_most(const struct attention *a, const struct chunk *c);
/* The session that gathers the scores of a prompt for a, by a scoring that is shared: among
 * sessions that share a prompt and a plan, one gathers for all. */
const struct attention *cb_scores_gatherer(const struct attention *a, int l);
/* Clears the first n entries of each row. */
void cb_scores_clear(float *row, int n_row, int stride, int n);
/* Attention over the whole store of layer l, without queries */
struct attn cb_scores_over_store(struct attention *a, int l);
/* Adds to out[n_head][n_ctx] the softmax weights that each entry of `at` gets from its queries. */
void cb_scores_add(struct attention *a, const struct attn *at, float *out);
/* Adds the scores of part i in the list of `read`, for the chunk's first c->n queries. */
void cb_scores_add_part(struct attention *a, const struct chunk *c, const struct attention *read,
                        int i, const float *lse);
/* score[n_head][n_ctx] -> the rows that the plan wants; returns how many */
int cb_scores_reduce(struct attention *a, int l, const float *score);
/* What prompt() of a scoring that is shared does: the sums of the gatherer -> *out */
void cb_scores_summed(struct attention *a, int l, struct scores *out);
/* Finished rows, of n_query queries -> *out, pooled if the plan says so */
void cb_scores_hand_over(struct attention *a, int l, const float *rows, int n_query, int prompt,
                         struct scores *out);

#endif
