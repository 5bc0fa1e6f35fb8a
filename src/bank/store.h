/* SPDX-License-Identifier: MIT */
/* store.h - one layer's cached keys and values: opened, read as runs, measured. Other files of this
 * room fill it (store_rows.h), prepack it, quantise it and copy it. */
#ifndef STORE_H
#define STORE_H

#include "store_state.h"

int cb_store_open(struct store *s, int n_kv, int hd, int cap, enum kv_type type_k,
                  enum kv_type type_v, int n_col);
void cb_store_close(struct store *s);

/* Rows are moved to 2 MiB pages where they fill such; not where the store has small_pages. */
void cb_store_huge_pages(struct store *s);
/* The keys of slots lo..hi-1 go, besides those that went before next to them. */
void cb_store_drop_keys(struct store *s, int kv, int lo, int hi);

/* Slots from..to-1 of one head; all of them where any order will do: as their rows lie, with the
 * order. */
struct kv_run cb_store_run(const struct store *s, int kv, int from, int to);
int cb_store_max_len(const struct store *s);
int cb_store_min_len(const struct store *s);
int32_t cb_store_pos(const struct store *s, int kv, int slot);
/* Bytes that an attention over run, of one head, reads. */
uint64_t cb_store_run_bytes(const struct store *s, const struct kv_run *run);
/* The same without the keys. */
uint64_t cb_store_value_bytes(const struct store *s, const struct kv_run *run);
/* Bytes of keys and values of n slots of KV head kv of which none was dropped. */
uint64_t cb_store_bytes_of(const struct store *s, int kv, int n);
/* Bytes that n_kv heads of n slots take: keys, values, and what is kept beside them. */
uint64_t cb_store_bytes(const struct store *s);

size_t cb_store_list_bytes(const struct store *s);              /* of pos, of row */
void cb_store_release_gap(struct store *s, int kv, int had_hi); /* pages of keys that went */

#endif
