/* SPDX-License-Identifier: MIT */
/* store_state.h - one layer's cached keys and values, [n_kv][capacity][head_dim] each. Address
 * space for the capacity is reserved; memory is taken as slots are used and given back when they
 * are dropped. KV heads may hold different tokens; slots are ascending in position.
 *
 * Slot i lies in row i of memory until slots are dropped one at a time. Then the next token takes
 * the row of the dropped slot, so dropping a token at each step moves no rows (store_rows.c). */
#ifndef STORE_STATE_H
#define STORE_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "device/device.h"
#include "pages.h"

enum { CB_STORE_MIX = 128 }; /* heads with fewer slots stay in order: moving rows is cheap there */

struct store {
    int n_kv, hd, cap;
    enum kv_type type_k, type_v;
    size_t row_k, row_v;   /* bytes of a slot's key, value */
    size_t head_k, head_v; /* bytes from one KV head to the next */
    uint8_t *k, *v;
    int one_row;          /* 1: a slot's value is its key's row: v is k, and a row is stored once */
    int *n;               /* [n_kv] slots in use */
    int *rows;            /* [n_kv] rows in use: one for each slot, and the hole */
    int *hole;            /* [n_kv] the row that the next token takes; -1: the row after the last */
    int *mixed;           /* [n_kv] 1: `row` says where each slot lies; 0: slot i lies in row i */
    int32_t *row;         /* [n_kv][cap]; NULL until a head is first mixed */
    int any_order;        /* 1: attention may read rows in memory order */
    int32_t *pos;         /* [n_kv][cap], or NULL: slot i holds position i in every head */
    int *gap_lo, *gap_hi; /* [n_kv] slots whose keys were dropped and whose values stay */
    int dropped_at;       /* tokens fed when a slot was last dropped; 0: never */
    int n_col;            /* float columns for each slot */
    float *col;           /* [n_kv][n_col][cap] */
    struct kivi_store *kivi;  /* state of store_kivi.c; NULL: nothing is quantised */
    int rows_only;            /* 1: nothing is prepacked, even if the device could */
    int small_pages;          /* 1: cb_store_huge_pages() does nothing */
    struct device *mirror;    /* the device that may hold copies of rows; NULL: none does */
    int may_prepack;          /* nobody reads rows one by one (cb_store_may_prepack) */
    struct device *prepacker; /* the device that reads prepacked blocks; NULL: rows stay rows */
    int prepacked;            /* the first `prepacked` rows of every head are prepacked */
    float *step[2];   /* [n_kv][cap] steps of keys, of values; NULL: none yet, or never any */
    int sketch_block; /* slots of a sketch (store_sketch.c); 0: keys are not sketched */
    int sketch_bits;  /* bits of sketched keys; 0: a sketch is the bounds of the block's keys */
    int sketch_out;   /* the first slots, which do not count for the range of their block */
    int sketched;     /* the first `sketched` slots of every head have sketches */
    size_t head_sketch;
    uint8_t *sketch;     /* NULL: none yet */
    int sketch_columns;  /* > 0: a sketch is this many columns of a slot's skewed key, as halves */
    float *skew;         /* [n_kv][hd][columns, padded]; NULL without columns */
    int32_t skewed_at;   /* tokens fed when the skew was made; 0: not yet */
    struct store *later; /* the layer with which older slots share directions (store_pair.c); NULL:
                            there is none */
    int merged;          /* the first `merged` slots of every head do */
    int *retained;       /* [n_kv][2] rows among them that were kept, of keys, of values */
};

/* Arrays of rows: keys, and values if they have rows of their own */
static inline int cb_store_sides(const struct store *s)
{
    return s->one_row ? 1 : 2;
}

/* Bytes of a slot's key and value */
static inline size_t cb_store_slot_bytes(const struct store *s)
{
    return s->row_k + (s->one_row ? 0 : s->row_v);
}

/* Address of a row: of keys; of values; of keys (v = 0) or values (v = 1) */
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

/* Call after the host has written rows, so that copies of them on a device are renewed. */
static inline void cb_store_wrote(const struct store *s, const void *from, size_t bytes)
{
    if (s->mirror)
        s->mirror->ops->memory->wrote(s->mirror, from, bytes);
}

/* Frees the memory of the whole pages of rows from..to, which a device then has no copy of either.
 */
static inline void cb_store_give_back(const struct store *s, uint8_t *from, uint8_t *to)
{
    if (from < to)
        cb_store_wrote(s, from, (size_t)(to - from));
    cb_pages_give_back(from, to);
}

/* Index of a slot in lists [n_kv][cap] */
static inline size_t cb_store_at(const struct store *s, int kv, int slot)
{
    return (size_t)kv * (size_t)s->cap + (size_t)slot;
}

/* How many slots of a head have rows of their own of keys (v = 0) or values, of `merged` */
static inline int *cb_store_retained(const struct store *s, int kv, int v)
{
    return s->retained + 2 * kv + v;
}

static inline float *cb_store_col(const struct store *s, int kv, int c)
{
    return s->col + ((size_t)kv * (size_t)s->n_col + (size_t)c) * (size_t)s->cap;
}

#endif
