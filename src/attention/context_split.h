/* SPDX-License-Identifier: MIT */
/* context_split.h - one context over several ranks: which rank computes which tokens of a prompt,
 * which one keeps which slots, and how the ranks' parts are joined. Every rank calls the same
 * functions in the same order. */
#ifndef CONTEXT_SPLIT_H
#define CONTEXT_SPLIT_H

#include "attention.h"
#include "ranks/ranks.h"

/* Deals out the slots that the session will hold, of the layers for which deals[n_layer] is 1; call
 * before anything is fed. works 1: prompts are dealt out as work too; 0: each rank computes all
 * tokens, but attends with its share of a chunk's queries. cb_attention_close() closes it. */
int cb_context_split_open(struct attention *a, struct ranks *team, const char *deals, int works);
void cb_context_split_close(struct attention *a);
size_t cb_context_split_bytes(const struct attention *a); /* buffers of messages */

/* From here on, without a split, each function answers as for one process, or does nothing. */

/* 1: the slots of layer l are dealt out; 0: each rank has all of them */
int cb_context_split_deals(const struct attention *a, int l);
int cb_context_split_deals_any(const struct attention *a); /* of any layer */
/* How many of the slots of positions 0..n-1 of layer l this rank keeps; the most that any keeps of
 * positions lo..n-1 */
int cb_context_split_own(const struct attention *a, int l, int n);
int cb_context_split_most_own(const struct attention *a, int l, int lo, int n);
/* How many slots of c's layer all ranks have together when c's last token attends */
int cb_context_split_len(const struct attention *a, const struct chunk *c);
/* Messages, and bytes that this rank sends, for the last of n tokens, which is decoded */
void cb_context_split_traffic(const struct attention *a, int n, int *messages, uint64_t *bytes);
/* How many ranks share the session's context, and their choice of what a token reads; 1 and NULL
 * without a split */
int cb_context_split_ranks(const struct attention *a);
int cb_context_split_block(const struct attention *a); /* positions that are dealt out together */
struct rank_choice *cb_context_split_choice(const struct attention *a);

/* ---- which tokens of a feed this rank computes ---- */

/* Call where a prompt of n tokens begins: those that this rank computes -> *row, ascending numbers
 * among the n; their count. */
int cb_context_split_begin(struct attention *a, int n, const int **row);
int cb_context_split_deals_work(const struct attention *a); /* 1: of any prompt */
int cb_context_split_works(const struct attention *a);      /* 1: this rank computes some of them */
/* The most tokens that go through a layer at once, from the i-th that this rank computes on */
int cb_context_split_step(const struct attention *a, int i);
/* x[n] of the prompt's last token, where it was computed -> x on all ranks */
int cb_context_split_last(const struct attention *a, float *x, int n);
/* rows[][n] of the tokens that this rank has computed -> those of all tokens of the prompt */
int cb_context_split_gather(const struct attention *a, float *rows, int n);

/* rows[][row], of which this rank has its own among the last n tokens of the prompt, in order, at
 * the begin -> all n of them; room for n */
int cb_context_split_last_rows(const struct attention *a, float *rows, size_t row, int n);
/* The same of ring[w][row], in which a token's row stands at its position modulo w */
int cb_context_split_last_of(const struct attention *a, float *ring, size_t row, int w);

/* ---- of a layer, in the order of a feed ---- */

/* 1: the new rows of all ranks are stored, or they are not for this rank; 0: the caller stores
 * those of c */
int cb_context_split_append(struct attention *a, const struct chunk *c);
/* 1: no rank has all rows that the step's queries read, so that they go round (prompt_rounds.c) */
int cb_context_split_goes_round(const struct attention *a, int l);
/* Then, once c is stored: rank r's queries of the step that c is of -> of; and where their results
 * continue on this rank, whose own queries' are `own` */
void cb_context_split_piece(const struct attention *a, const struct chunk *c, int r,
                            struct chunk *of);
float *cb_context_split_out(const struct attention *a, int r, float *own);
/* How many of the newest slots of the layer this rank does not read for chunk c; *causal becomes 0
 * where all queries read all others. */
int cb_context_split_unread(const struct attention *a, const struct chunk *c, int *causal);
/* The count of the chunk's queries that this rank attends with, from *first on. It is all of them
 * where ranks join what they read, or where the tokens are dealt out already */
int cb_context_split_queries(const struct attention *a, const struct chunk *c, int *first);
/* The call's out, and lse if it has one, of this rank's queries -> of all ranks' */
int cb_context_split_share_out(struct attention *a, const struct attention_call *call);
/* 1: what layer l reads now is joined with what the other ranks read, by its log-sum-exp */
int cb_context_split_joins(const struct attention *a, int l);
/* Joins it: the call's out and lse of this rank's slots -> of all slots */
int cb_context_split_join(struct attention *a, const struct attention_call *call);
/* The session holds the slots of all ranks, out of a saved bank: this one keeps its own. */
int cb_context_split_loaded(struct attention *a);
/* What readers remember of a token's choice is forgotten, as it is of the slots of one process, or
 * of those of a rank; the next token chooses again. */
void cb_context_split_forget(struct attention *a);
/* A feed has gone through layer l: after a prompt, this rank keeps its own slots alone. */
int cb_context_split_settle(struct attention *a, int l);

#endif
