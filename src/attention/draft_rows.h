/* SPDX-License-Identifier: MIT */
/* draft_rows.h - decoded tokens that may be taken back where that takes more than forgetting their
 * rows: layers with a window have dropped a row for each of them, and layers that share an earlier
 * layer's rows must see these as they were at each token. */
#ifndef DRAFT_ROWS_H
#define DRAFT_ROWS_H

#include "attention.h"

/* How many slots layer l keeps, in any order, as tokens are decoded; 0: all of them */
typedef int window_of(const struct attention *a, int l);
/* Adds the key and value of a token to its layer's store, which makes room for it. */
typedef int store_chunk(struct attention *a, const struct chunk *c);

void cb_draft_rows_close(struct attention *a);
size_t cb_draft_rows_bytes(const struct attention *a);
/* Room for n tokens; nothing where no layer needs it. CB_ENOMEM */
int cb_draft_rows_fit(struct attention *a, int n, window_of *window);

/* From here on up to n tokens are decoded that may be taken back, all in one call (together), or
 * one by one: then the first cut does not end it. n is at most what there is room for. */
void cb_draft_rows_begin(struct attention *a, int n, int together);
void cb_draft_rows_end(struct attention *a);
/* A feed begins: tokens that were decoded in one call before it stay. */
void cb_draft_rows_feed(struct attention *a);
/* 1: layer l can go back to n tokens with what is held */
int cb_draft_rows_has(const struct attention *a, int l, int n);

/* Before c, a decoded token, is stored: copies what its layer is about to replace, and its key and
 * value. */
int cb_draft_rows_note(struct attention *a, const struct chunk *c);
/* Layer c->l reads the rows of an earlier layer, which has taken all tokens of the call: its rows
 * become those after c's token. */
int cb_draft_rows_lend(struct attention *a, const struct chunk *c, store_chunk *store);
/* Before a cut to n tokens: layers get back the rows that the tokens after them replaced. */
int cb_draft_rows_cut(struct attention *a, int n, store_chunk *store);

#endif
