/* SPDX-License-Identifier: MIT */
/* kivi_block.h - keys and values of a block that holds quantised entries: packed for the products,
 * or multiplied where they lie. */
#ifndef KIVI_BLOCK_H
#define KIVI_BLOCK_H

#include "attn_tile.h"

/* The logits of rows [r, r + rows) for n entries from `from` on, and what they add to
 * o[m][hd]; where whole blocks are quantised, and a token reads them. kp: room for a group of
 * packed keys */
int cb_kivi_has_logits(const struct kern_vec *k, const struct tile *t);
void cb_kivi_logits(const struct kern_vec *k, const struct tile *t, int r, int rows, int from,
                    int n, void *kp, float *s);
int cb_kivi_has_pv(const struct kern_vec *k, const struct tile *t, int from, int n);
void cb_kivi_pv(const struct kern_vec *k, const struct tile *t, int from,
                const struct kern_soft *soft, float *o);

/* Entries from..from+n-1 of a run with quantised ones as panels of packed keys, whole
 * groups of 32 of them, and as values: f32 rows, or as pv_i16 takes them */
void cb_kivi_pack_keys(const struct kern_vec *k, const struct attn *a, const struct kv_run *run,
                       int from, int n, void *kp);
void cb_kivi_pack_values(const struct kern_vec *k, const struct attn *a, const struct kv_run *run,
                         int from, int n, int hd_pad, void *v);

#endif
