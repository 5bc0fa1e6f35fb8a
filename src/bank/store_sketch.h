/* SPDX-License-Identifier: MIT */
/* store_sketch.h - sketches of a store's keys (device/sketch.h), for layers whose tokens search
 * them for the slots to read. Every whole block has one. Slots are not dropped from such a store.
 */
#ifndef STORE_SKETCH_H
#define STORE_SKETCH_H

#include "store_state.h"

/* From now on cb_store_sketch() sketches whole blocks of `block` slots: on `bits` bits, where the
 * block is SKETCH_BLOCK, or by their bounds with bits 0. The first n_out slots are read anyway. */
void cb_store_may_sketch(struct store *s, int bits, int block, int n_out);
/* From now on it gives each slot a partial key: the first `columns` columns of its key times the
 * KV head's skew, an orthogonal matrix that the caller makes before the first slot. */
int cb_store_may_skew(struct store *s, int columns);
void cb_store_set_skew(struct store *s, int kv, int column, const double *x);  /* x[hd] */
void cb_store_skewed(const struct store *s, int kv, const float *x, float *y); /* y[columns] */
float *cb_store_skew(const struct store *s, int kv);
size_t cb_store_skew_bytes(const struct store *s); /* of a KV head */

int cb_store_sketch(struct store *s, struct device *d); /* every whole block that has none */
/* 1: it has some to make, for which the host reads rows that ops have stored */
int cb_store_sketch_reads(const struct store *s);
void cb_store_sketch_close(struct store *s);
/* The slots keep[n], of whole blocks that are sketched or not, become slots 0..n-1 (store_rows.h).
 */
void cb_store_sketch_deal_out(struct store *s, const int *keep, int n);
void cb_store_sketch_cut(struct store *s, int n); /* forgets blocks with slots from n on */
/* Room for the sketches of the slots that the store holds, which the caller fills */
int cb_store_sketch_fit(struct store *s);

/* Bytes of a head's sketches of n slots; 0 if the store has none */
uint64_t cb_store_sketch_bytes(const struct store *s, int n);
uint8_t *cb_store_sketch_at(const struct store *s, int kv, int slot); /* slot begins a block */

#endif
