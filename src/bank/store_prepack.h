/* SPDX-License-Identifier: MIT */
/* store_prepack.h - packs rows that every token reads into blocks that attention can multiply
 * directly. */
#ifndef STORE_PREPACK_H
#define STORE_PREPACK_H

#include "store_state.h"

/* From now on cb_store_prepack() prepacks whole blocks, if the device can read them. */
void cb_store_may_prepack(struct store *s, struct device *d);
int cb_store_prepack(struct store *s);           /* every whole block that is still rows */
int cb_store_prepack_due(const struct store *s); /* their number */
void cb_store_prepack_close(struct store *s);
int cb_store_need_steps(struct store *s, int v); /* room for steps of keys (v = 0) or values */
/* Ends prepacking from row `from` on: blocks that hold rows below n become rows again, later blocks
 * are forgotten. */
void cb_store_unpack(struct store *s, int from, int n);
void cb_store_unpack_all(struct store *s); /* and nothing is prepacked later */
/* The keys of block b of a head as rows, KV_PREPACK of them: where they lie, or unpacked to `to` */
const void *cb_store_key_block(const struct store *s, int kv, int b, void *to);
/* A store filled with blocks in panels of this many keys, which another instruction set prepacked
 * (device/prepacked.h): they become rows, and blocks of this device's own. */
int cb_store_repack(struct store *s, struct device *d, int panel);
/* The steps of `row` and of the rows after it; NULL: there are none */
float *cb_store_steps(const struct store *s, int kv, int v, int row);
/* The steps of the prepacked rows keep[n] (ascending) of a head become those of rows 0..n-1. */
void cb_store_deal_steps(struct store *s, int kv, const int *keep, int n);
/* Bytes of the steps of n prepacked rows of a head */
uint64_t cb_store_step_bytes(const struct store *s, int n);

#endif
