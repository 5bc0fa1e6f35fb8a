/* SPDX-License-Identifier: MIT */
/* store.h - one layer's cached keys and values: opened, read as runs, measured. Other files of this
 * folder fill it (store_rows.h), prepack it, quantise it and copy it. */
#ifndef STORE_H
#define STORE_H

#include "store_state.h"

int cb_store_open(struct store *s, int n_kv, int hd, int cap, enum kv_type type_k,
                  enum kv_type type_v, int n_col);
/* Values become the keys' rows: a row is stored once, and never prepacked. Call before the store is
 * mirrored or filled. */
void cb_store_share_rows(struct store *s);
/* Older slots of `earlier` will share directions with those of `later` (store_pair.h), whose rows
 * stay rows. Both are empty, without columns or quantised rows, and keep all slots. */
int cb_store_pair(struct store *earlier, struct store *later);
void cb_store_close(struct store *s);
/* Lets a device with memory of its own mirror the rows of all heads, quantised ones too. */
int cb_store_mirror(struct store *s, struct device *d);

/* Moves rows that fill 2 MiB pages into huge pages, unless the store has small_pages. */
void cb_store_huge_pages(struct store *s);
/* Drops the keys of slots lo..hi-1, which adjoin the keys dropped before; values stay. */
void cb_store_drop_keys(struct store *s, int kv, int lo, int hi);

/* Slots from..to-1 of one head. All slots of a head with mixed rows come in memory order, with the
 * list of rows as `order`, if the store may be read in any order. */
struct kv_run cb_store_run(const struct store *s, int kv, int from, int to);
/* 1: the slots of all heads are the positions 0..n-1, a plain row each */
int cb_store_is_whole(const struct store *s, int n);
int cb_store_max_len(const struct store *s);
int cb_store_min_len(const struct store *s);
int32_t cb_store_pos(const struct store *s, int kv, int slot);
/* Bytes that attention over `run`, of one head, reads. */
uint64_t cb_store_run_bytes(const struct store *s, const struct kv_run *run);
/* The same without the keys. */
uint64_t cb_store_value_bytes(const struct store *s, const struct kv_run *run);
/* Bytes of keys, sketches and values of n slots of KV head kv, if none was dropped. */
uint64_t cb_store_bytes_of(const struct store *s, int kv, int n);
/* Of them, keys and values of slots first..n-1. */
uint64_t cb_store_bytes_from(const struct store *s, int kv, int first, int n);
/* Bytes of n slots of one head that are old enough to be quantised, if the store does that. */
uint64_t cb_store_old_bytes(const struct store *s, int n);
/* Bytes of all heads: keys, values, and what stands beside them. */
uint64_t cb_store_bytes(const struct store *s);
/* Of them, what is neither a key nor a value: steps of prepacked blocks, sketches, lists, columns
 */
uint64_t cb_store_beside(const struct store *s);
uint64_t cb_store_beside_of(const struct store *s, int n); /* n slots of a head: without lists */

size_t cb_store_list_bytes(const struct store *s);              /* of the list pos, or of row */
void cb_store_release_gap(struct store *s, int kv, int had_hi); /* frees pages of dropped keys */

#endif
