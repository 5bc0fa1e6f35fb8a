/* SPDX-License-Identifier: MIT */
/* chooser.h - layers that read everything and choose the slots that later layers read. */
#ifndef CHOOSER_H
#define CHOOSER_H

#include "attention/attention.h"
#include "bank/store_areas.h"

enum { CHOICES = MOST_DRAFT + 1 }; /* most tokens of a session that are decoded together */

int cb_chooser_open(struct attention *a); /* does nothing where the plan has no such layer */
void cb_chooser_close(struct attention *a);
void cb_chooser_clear(struct attention *a);
/* The state of layer l as plain data, as in bank/store_areas.h. check() comes after the areas were
 * filled from a file. */
int cb_chooser_n_counts(const struct attention *a, int l); /* 0: the layer does not choose */
void cb_chooser_counts(const struct attention *a, int l, int32_t *out);
int cb_chooser_set_counts(struct attention *a, int l, const int32_t *counts);
int cb_chooser_most_areas(const struct attention *a, int l);
int cb_chooser_areas(const struct attention *a, int l, struct area *out);
int cb_chooser_check(const struct attention *a, int l);
/* Can the state of choosing layers be cut back? cb_chooser_cut() does it, to n tokens; call it
 * before the bank is cut. */
int cb_chooser_can_cut(const struct attention *a);
void cb_chooser_cut(struct attention *a, int n);
size_t cb_chooser_bytes(const struct attention *a, int n_most); /* work space for n_most slots */

/* Keeps the last queries of a chunk for layer l's window of queries. q[n]: `stride` floats from one
 * token to the next, positions pos0.. */
void cb_chooser_chunk(struct attention *a, int l, const float *q, int stride, int n, int pos0);
/* Buffer in which layer l's attention is to leave the logits of the token being decoded,
 * [n_head][n_ctx]; NULL: everything will be read anyway. */
float *cb_chooser_logits(struct attention *a, int l);
void cb_chooser_step(struct attention *a, int l, const float *q); /* chooses; q[n_head][hd] */
/* The *n slots that layer l chose; NULL: all. */
const int32_t *cb_chooser_slots(const struct attention *a, int l, int *n);
/* Tells the device which slots the layers behind l will read of what it chose. */
void cb_chooser_ahead(struct attention *a, int l);

/* How many of n slots a decoded token reads in layer l after a prompt of n_prompt tokens. */
int cb_chooser_reads(const struct attention *a, int l, int n, int n_prompt);

#endif
