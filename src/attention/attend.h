/* SPDX-License-Identifier: MIT */
/* attend.h - attention of one layer in five steps: append, parts, attend and join, score, settle.
 */
#ifndef ATTEND_H
#define ATTEND_H

#include "attention.h"

/* model, dev, bank (open), policy (planned) and chunk of *a are set, the rest is 0. prefill: a form
 * of prefill with options; NULL = "dense". cb_attention_close() is due also after a failure. */
int cb_attention_open(struct attention *a, const char *prefill);
void cb_attention_close(struct attention *a);
/* Work space in bytes after feeds of up to n_feed tokens, when a KV head has held up to n_most
 * slots before the policy dropped some, and n_kept after it. */
size_t cb_attention_bytes(const struct attention *a, int n_feed, int n_most, int n_kept);
/* `to` was opened as `from` was, with a bank that is a copy, and goes on as `from` would. */
void cb_attention_copy(struct attention *to, const struct attention *from);
/* Can the timeline be cut back to n tokens, and go on as if the others had never come? NULL: yes;
 * else why not. */
const char *cb_attention_uncut(const struct attention *a, int n);
void cb_attention_cut(struct attention *a, int n); /* the bank is cut with it */
void cb_attention_clear(struct attention *a); /* what layers and the policy remember is forgotten */

/* Does a prompt attend to all of itself, with keys and values of each layer's own? */
int cb_attention_is_dense(const struct attention *a);

/* Chunk c goes through layer c->l: its keys and values are stored, its queries attend
 * -> out[c->n][n_head * hd]. */
int cb_attend(struct attention *a, const struct chunk *c, float *out);
/* Layer l has seen the whole feed: its scores go to the policy, which keeps and merges slots. */
int cb_attend_end(struct attention *a, int l);

#endif
