/* SPDX-License-Identifier: MIT */
/* attend.h - attention of one layer in five steps: append, parts, attend and join, score, settle
 * (attend.c); what a session's attention is asked between feeds (attend_open.c), and what its
 * layers' readers are (reader_hooks.c). */
#ifndef ATTEND_H
#define ATTEND_H

#include "attention.h"
#include "context_split.h"
#include "draft_rows.h"
#include "reads.h"
#include "token_pruning.h"

/* The caller sets model, dev, bank (open), policy (planned) and chunk of *a; the rest is 0.
 * prefill: a form of prefill with options; NULL = "dense". Call cb_attention_close() even after a
 * failure. */
int cb_attention_open(struct attention *a, const char *prefill);
void cb_attention_close(struct attention *a);
/* Work space in bytes after feeds of up to n_feed tokens. A KV head has held up to n_most slots
 * before the policy dropped some, and up to n_kept after. */
size_t cb_attention_bytes(const struct attention *a, int n_feed, int n_most, int n_kept);
/* NULL if the timeline can be cut back to n tokens and continue as if the others had never been
 * fed; else the reason why not. */
const char *cb_attention_uncut(const struct attention *a, int n);
/* The bank is cut with it, after cb_attend_take_back(). n: a place that cb_bank_checkpoint() gives.
 * Then call the second. */
void cb_attention_cut(struct attention *a, int n);
int cb_attention_resume(struct attention *a, int n);
/* NULL if decoded tokens can be taken back, and if several can go through each layer before the
 * next layer; else the reason why not. */
const char *cb_attention_undraftable(const struct attention *a);
/* How many tokens from position `at` on may be decoded and taken back */
int cb_attention_draft_room(const struct attention *a, int at);
int cb_attention_max_draft(const struct attention *a);  /* at most this many */
int cb_attention_fit_draft(struct attention *a, int n); /* work space for n; CB_ENOMEM */
void cb_attention_clear(struct attention *a);           /* resets the state of layers and policy */

/* Are all rows stored as they come and left in place, so that others can read them? */
int cb_attention_keeps_rows(const struct attention *a);

/* Has any layer a reader with one of these traits (enum reader_trait)? */
int cb_attention_has(const struct attention *a, unsigned traits);

/* How many tokens layer l keeps because later queries see no more: the window of the plan, or that
 * of the model where no method acts on the layer. 0 = all */
int cb_attend_forgets(const struct attention *a, int l);
/* The length of the chunks within which layer l attends, by the model; 0 = none. Where a chunk
 * begins, the layer holds nothing. */
int cb_attend_chunk(const struct attention *a, int l);
/* Does a method that evicts act on layer l? */
int cb_attend_evicts(const struct attention *a, int l);
/* Are layer l's rows those that a session of another policy can continue with? Also where it has a
 * state instead. */
int cb_attend_shares_rows(const struct attention *a, int l);
/* How many of n slots are left when the last `keep` are seen: at the end of a prompt those, within
 * it all but whole splits. */
int cb_attend_left(int n, int keep, int at_end);

/* Do prompts attend densely: every token to all earlier ones, with each layer's own keys and
 * values? */
int cb_attention_is_dense(const struct attention *a);

/* Are prompts dense, is every slot kept as it was stored, and does no state of the policy depend on
 * how the tokens were fed? Then it is the same whether a prompt comes at once or in parts. */
int cb_attention_extends(const struct attention *a);
/* 1: the same, but windows of the model's own drop rows, so there is no way back */
int cb_attention_only_forks(const struct attention *a);

/* A feed begins, which the bank counts already (n_feed); and all layers have taken its n tokens,
 * which it counts too (n_seen). */
void cb_attention_begin(struct attention *a);
void cb_attention_fed(struct attention *a, int n);
/* Tokens go through the state of a layer that has one -> what its last product reads,
 * [n_tok][mixer->out.n_in] */
const float *cb_attend_mix(const struct mix_call *c);
/* The tokens of the session's feed before position pos have gone through layer l. */
void cb_attend_passed(struct attention *a, int l, int pos);

/* How many tokens from token i of a feed on may go through layer l together */
int cb_attention_max_step(const struct attention *a, int l, int i);
/* Before a cut to n tokens: layers get back the rows that the tokens after them replaced. */
int cb_attend_take_back(struct attention *a, int n);
/* Attention of a chunk of each of n <= ATTENTION_CALLS sessions: stores its keys and values,
 * attends with its queries -> out. */
int cb_attend(struct attention_call *call, int n);
/* 1: a prompt reads all rows of layer l as they are stored, and nobody looks at its queries */
int cb_attend_reads_all(const struct attention *a, int l);
/* Stores what a prompt's chunk brings; the caller attends to all of it himself, and nobody scores.
 */
int cb_attend_store(const struct attention_call *call);
/* Does layer l want guesses of its queries before a decoded token attends? Then call the second for
 * token i of those that are decoded together; q[n_head][hd], rotated. */
int cb_attend_wants_guess(const struct attention *a, int l);
void cb_attend_guess(struct attention *a, int l, int i, const float *q);
/* 1: layer l takes what its selector makes of a decoded token where the device has made it */
int cb_attend_takes_index(const struct attention *a, int l);
/* Tells the device which rows layer l, the one after the layer that begins now, will read: all rows
 * that it has, or rows that are not known yet. */
void cb_attention_rows_ahead(const struct attention *a, int l);
/* Call after the whole feed has gone through layer l. The layer's scores go to the policy, which
 * keeps and merges slots. */
int cb_attend_end(struct attention *a, int l);
/* Call when a prompt that is to be repeated (scoring/repeat_scores.c) has been repeated, and what
 * was fed for it has been cut. */
int cb_attend_repeated(struct attention *a);

/* After how many tokens of a prompt layer l drops slots, besides at its end; 0: never */
int cb_attend_drops_every(const struct attention *a, int l);

/* Why a policy of this plan does not go with a form of prefill: its layers lack the keys that the
 * prompt chooses from, drop them early, or want scores of all queries. NULL: it does */
const char *cb_attention_refuses(const struct method *form, const struct layer_plan *row,
                                 int n_layer);

/* ---- the memory plan ---- */

/* Bytes that a decoded token reads in layer l, which has n slots to read, its own among them.
 * *scanned: of them, bytes of sketches */
uint64_t cb_attention_read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                                 uint64_t *scanned);
/* Bytes that layer l holds beside its slots' rows after n tokens */
uint64_t cb_attention_held_bytes(const struct attention *a, int l, int n);
/* Bytes of its slots' rows that layer l does not hold once it has attended; with late 1: once the
 * layer after it has */
uint64_t cb_attention_unheld_bytes(const struct attention *a, int l, int late,
                                   const struct planned *p);
/* Generated tokens after which layers come to hold less; 0: they do not */
int cb_attention_period(const struct attention *a);

/* ---- what the reader of layer l remembers, as plain data: see bank/store_areas.h. Returned is how
 * many counts or areas there are; with out NULL, how many areas there may be. check() comes after
 * the areas were filled from a file. ---- */
struct area;
int cb_attention_counts(const struct attention *a, int l, int32_t *out);
int cb_attention_set_counts(struct attention *a, int l, const int32_t *counts);
int cb_attention_areas(const struct attention *a, int l, struct area *out);
int cb_attention_check(const struct attention *a, int l);
/* Bytes that the first n tokens take of an area that a reader has */
size_t cb_attention_area_of(const struct attention *a, const struct area *of, int n);
/* Numbers of a key, where such an area has keys in strips; else 0 */
int cb_attention_area_strips(const struct attention *a, const struct area *of);
int cb_attention_has_strips(const struct attention *a); /* 1: some layer may have such areas */

/* ---- split_refusals.c: what does not go with a context over several ranks ---- */

/* 1 -> deals[n_layer] where a layer's slots are to be dealt out; others keep little, on every rank.
 * CB_EUNSUPPORTED: cb_error() says what does not go with it. */
int cb_split_check(const struct attention *a, char *deals);
/* The same where each rank computes all tokens: what does not go with it is on every rank. */
void cb_split_deals(const struct attention *a, char *deals);

#endif
