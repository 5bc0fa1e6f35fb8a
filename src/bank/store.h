/* SPDX-License-Identifier: MIT */
/* store.h - one layer's cached keys and values, [n_kv][capacity][head_dim] each. Address space for
 * the capacity is reserved; memory is taken as slots are used and given back when they are dropped.
 * KV heads may hold different tokens; slots are ascending in position.
 *
 * A slot is a row of memory, until slots are dropped one at a time: the next token takes the row of
 * the one that went, so that dropping a token a step moves no rows (store_rows.c). */
#ifndef STORE_H
#define STORE_H

#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

enum { CB_STORE_MIX = 128 }; /* heads of fewer slots stay in order: to move them costs little */

struct store {
    int n_kv, hd, cap;
    enum kv_type type_k, type_v;
    size_t row_k, row_v;   /* bytes of a slot's key, value */
    size_t head_k, head_v; /* bytes from one KV head to the next */
    uint8_t *k, *v;
    int *n;        /* [n_kv] slots in use */
    int *rows;     /* [n_kv] rows in use: as many as slots, and the hole */
    int *hole;     /* [n_kv] the row that the next token takes; -1: the one behind the last */
    int *mixed;    /* [n_kv] 1: slots lie in the rows that `row` says; 0: in their order */
    int32_t *row;  /* [n_kv][cap]; NULL before the first are mixed */
    int any_order; /* 1: attention may read rows as they lie */
    int32_t *pos;  /* [n_kv][cap], or NULL: slot i holds position i in every head */
    int *gap_lo, *gap_hi;     /* [n_kv] slots whose keys have been dropped, values not */
    int dropped_at;           /* tokens fed when a slot was last dropped; 0: none ever was */
    int n_col;                /* float columns a slot */
    float *col;               /* [n_kv][n_col][cap] */
    struct kivi_store *kivi;  /* what store_kivi.c keeps; NULL: nothing is quantised */
    int rows_only;            /* 1: nothing is prepacked, whatever the device can */
    int small_pages;          /* 1: cb_store_huge_pages() does nothing */
    struct device *prepacker; /* whose attention reads prepacked blocks; NULL: they stay rows */
    int prepacked;            /* rows 0.. of every head that are prepacked */
    float *step[2]; /* [n_kv][cap] of keys, of values; NULL before the first, or for ever */
};

int cb_store_open(struct store *s, int n_kv, int hd, int cap, enum kv_type type_k,
                  enum kv_type type_v, int n_col);
void cb_store_close(struct store *s);

/* Adds n tokens at positions pos0.. to every head; k and v are [n][n_kv][hd] at a stride in floats.
 * The caller has checked that they fit. */
int cb_store_append(struct store *s, struct device *d, const float *k, const float *v, int stride,
                    int n, int pos0);
/* Keeps slots keep[n] (ascending) of one head. */
int cb_store_keep(struct store *s, int kv, const int *keep, int n);
int cb_store_drop(struct store *s, int kv,
                  int slot);               /* all but one; not where some are quantised */
void cb_store_sort(struct store *s);       /* slots are rows again: what causal attention needs */
void cb_store_cut(struct store *s, int n); /* forgets positions n.. in every head */

/* ---- store_copy.c ---- */

/* `to` was opened as `from` was, and becomes what `from` is, whatever it held. After a failure it
 * must be cut to nothing, or closed. */
int cb_store_copy(struct store *to, const struct store *from);

/* ---- store_prepack.c: rows that are read for every token, in blocks ---- */

/* From now on cb_store_prepack() prepacks whole blocks, where the device can. */
void cb_store_may_prepack(struct store *s, struct device *d);
int cb_store_prepack(struct store *s); /* what is whole and is not yet */
void cb_store_prepack_close(struct store *s);
int cb_store_need_steps(struct store *s, int v); /* room for those of keys (v = 0) or values */
/* No block from row `from` on is prepacked any more; those that hold rows below n are rows again.
 */
void cb_store_unpack(struct store *s, int from, int n);
/* Those of a row and the ones behind it; NULL: there are none */
float *cb_store_steps(const struct store *s, int kv, int v, int row);
/* Bytes of the steps of a head's n rows once they are prepacked */
uint64_t cb_store_step_bytes(const struct store *s, int n);

/* Rows are moved to 2 MiB pages where they fill such; not where the store has small_pages. */
void cb_store_huge_pages(struct store *s);
/* The keys of slots lo..hi-1 go, besides those that went before next to them. */
void cb_store_drop_keys(struct store *s, int kv, int lo, int hi);

/* One slot's key (v = 0) or value (v = 1) as f32 x[hd] */
void cb_store_get(const struct store *s, struct device *d, int kv, int v, int slot, float *x);
enum { CB_STORE_MANY = 64 };
/* Those of slot[n], n <= CB_STORE_MANY -> x[n][hd] */
void cb_store_get_many(const struct store *s, struct device *d, int kv, int v, const int *slot,
                       int n, float *x);
void cb_store_set(struct store *s, struct device *d, int kv, int v, int slot, const float *x);

/* Slots from..to-1 of one head; all of them where any order will do: as their rows lie, with the
 * order. */
struct kv_run cb_store_run(const struct store *s, int kv, int from, int to);
int cb_store_max_len(const struct store *s);
int cb_store_min_len(const struct store *s);
int32_t cb_store_pos(const struct store *s, int kv, int slot);
/* Where a row of keys (v = 0) or values is. */
void *cb_store_row(const struct store *s, int kv, int v, int row);
/* Bytes that an attention over run, of one head, reads. */
uint64_t cb_store_run_bytes(const struct store *s, const struct kv_run *run);
/* The same without the keys. */
uint64_t cb_store_value_bytes(const struct store *s, const struct kv_run *run);
/* Bytes of keys and values of n slots of KV head kv of which none was dropped. */
uint64_t cb_store_bytes_of(const struct store *s, int kv, int n);
/* Bytes that n_kv heads of n slots take: keys, values, and what is kept beside them. */
uint64_t cb_store_bytes(const struct store *s);

/* Where a slot stands in lists of [n_kv][cap] */
static inline size_t cb_store_at(const struct store *s, int kv, int slot)
{
    return (size_t)kv * (size_t)s->cap + (size_t)slot;
}

static inline float *cb_store_col(const struct store *s, int kv, int c)
{
    return s->col + ((size_t)kv * (size_t)s->n_col + (size_t)c) * (size_t)s->cap;
}

size_t cb_store_list_bytes(const struct store *s);                /* of pos, of row */
void cb_store_give_back_gap(struct store *s, int kv, int had_hi); /* pages of keys that went */

/* ---- address space ---- */

/* Before n rows of every head are written from row[n_kv] on: pages that begin there are touched by
 * threads near those that will read them, where memory has nodes. */
void cb_store_touch(struct store *s, struct par *par, const int *row, int n);

size_t cb_store_page_up(size_t n);
int cb_store_reserve(size_t bytes,
                     void *out);              /* *out: pages that come zeroed, when first touched */
void cb_store_release(void *p, size_t bytes); /* p may be NULL */
void cb_store_give_back(uint8_t *from,
                        uint8_t *to); /* whole pages of [from, to); they read as 0 then */

#endif
