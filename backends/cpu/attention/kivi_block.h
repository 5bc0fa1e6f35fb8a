/* SPDX-License-Identifier: MIT */
/* kivi_block.h - keys and values of a block with quantised entries: packed for the products, or
 * multiplied in place. */
#ifndef KIVI_BLOCK_H
#define KIVI_BLOCK_H

#include "attn_tile.h"

/* Products in place, for a token's attention where whole blocks are quantised: logits of rows
 * [r, r + rows) for n entries from `from` on, and o[m][hd] += their weighted values. kp: room for a
 * group of packed keys */
int cb_kivi_has_logits(const struct kern_vec *k, const struct tile *t);
void cb_kivi_logits(const struct kern_vec *k, const struct tile *t, int r, int rows, int from,
                    int n, void *kp, float *s);
int cb_kivi_has_pv(const struct kern_vec *k, const struct tile *t, int from, int n);
void cb_kivi_pv(const struct kern_vec *k, const struct tile *t, int from,
                const struct kern_soft *soft, float *o);

/* Packs entries from..from+n-1 of a run with quantised entries: keys as panels, whole groups of 32;
 * values as f32 rows or in the form that pv_i16 reads */
void cb_kivi_pack_keys(const struct kern_vec *k, const struct attn *a, const struct kv_run *run,
                       int from, int n, void *kp);
void cb_kivi_pack_values(const struct kern_vec *k, const struct attn *a, const struct kv_run *run,
                         int from, int n, int hd_pad, void *v);

#endif
