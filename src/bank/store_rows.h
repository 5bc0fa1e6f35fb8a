/* SPDX-License-Identifier: MIT */
/* store_rows.h - adds tokens to a store, drops them, and reads and writes single slots. */
#ifndef STORE_ROWS_H
#define STORE_ROWS_H

#include "store_state.h"

/* Adds n tokens at positions pos0.. to every head; k and v are [n][n_kv][hd] at a stride in floats.
 * The caller has checked that they fit. */
int cb_store_append(struct store *s, struct device *d, const float *k, const float *v, int stride,
                    int n, int pos0);
/* The last n slots of every head lie at positions pos[n] (ascending); tokens between were never
 * added. */
int cb_store_set_pos(struct store *s, const int32_t *pos, int n);
/* Keeps slots keep[n] (ascending) of one head. */
int cb_store_keep(struct store *s, int kv, const int *keep, int n);
int cb_store_drop(struct store *s, int kv, int slot); /* all but one; not if some are quantised */
/* From now on each slot has a position of its own: slots of other processes are not here. */
int cb_store_list_positions(struct store *s);
void cb_store_forget_positions(struct store *s); /* slot i holds position i again */
/* Keeps slots keep[n] of one head, the first of which stay where they are, as they are: the others
 * are kept by other processes. None was dropped, and none is mixed. Prepacked rows are kept by
 * whole blocks; their steps move before (cb_store_deal_steps); s->prepacked counts those left. */
int cb_store_deal_out(struct store *s, int kv, const int *keep, int n);
void cb_store_sort(struct store *s);       /* moves slot i to row i, as causal attention needs */
void cb_store_cut(struct store *s, int n); /* forgets positions from n on in every head */

/* One slot's key (v = 0) or value (v = 1) as f32 x[hd] */
void cb_store_get(const struct store *s, struct device *d, int kv, int v, int slot, float *x);
enum { CB_STORE_MANY = 64 };
/* Keys or values of slot[n], n <= CB_STORE_MANY -> x[n][hd] */
void cb_store_get_many(const struct store *s, struct device *d, int kv, int v, const int *slot,
                       int n, float *x);
/* The same of the n slots from `from` on */
void cb_store_get_range(const struct store *s, struct device *d, int kv, int v, int from, int n,
                        float *x);
void cb_store_set(struct store *s, struct device *d, int kv, int v, int slot, const float *x);

#endif
