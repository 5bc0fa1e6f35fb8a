/* SPDX-License-Identifier: MIT */
/* store_state.h - one layer's cached keys and values, [n_kv][capacity][head_dim] each. Address
 * space for the capacity is reserved; memory is taken as slots are used and given back when they
 * are dropped. KV heads may hold different tokens; slots are ascending in position.
 *
 * A slot is a row of memory, until slots are dropped one at a time: the next token takes the row of
 * the one that went, so that dropping a token a step moves no rows (store_rows.c). */
#ifndef STORE_STATE_H
#define STORE_STATE_H

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

/* Where a row of keys, of values, of keys (v = 0) or values is */
static inline uint8_t *cb_store_key(const struct store *s, int kv, int row)
{
    return s->k + s->head_k * (size_t)kv + s->row_k * (size_t)row;
}

static inline uint8_t *cb_store_value(const struct store *s, int kv, int row)
{
    return s->v + s->head_v * (size_t)kv + s->row_v * (size_t)row;
}

static inline void *cb_store_row(const struct store *s, int kv, int v, int row)
{
    return v ? cb_store_value(s, kv, row) : cb_store_key(s, kv, row);
}

/* Where a slot stands in lists of [n_kv][cap] */
static inline size_t cb_store_at(const struct store *s, int kv, int slot)
{
    return (size_t)kv * (size_t)s->cap + (size_t)slot;
}

static inline float *cb_store_col(const struct store *s, int kv, int c)
{
    return s->col + ((size_t)kv * (size_t)s->n_col + (size_t)c) * (size_t)s->cap;
}

#endif
