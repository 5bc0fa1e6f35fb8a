/* SPDX-License-Identifier: MIT */
/* store_kivi.h - a store whose oldest keys and values are quantised. */
#ifndef STORE_KIVI_H
#define STORE_KIVI_H

#include "store_state.h"

struct kivi_form {
    int bits;     /* 2 or 4; 0: not quantised */
    int residual; /* newest tokens that never are; a multiple of KIVI_GROUP */
};

/* A store that has just been opened for f16 rows becomes one. */
int cb_kivi_open(struct store *s, struct kivi_form k, struct kivi_form v);
void cb_kivi_close(struct store *s);
/* Keys of one KV head are never quantised. Nothing where the store quantises none. */
void cb_kivi_keys_stay(struct store *s, int kv);

/* Quantises what is older than the residuals: keys in whole residuals, values one by one. */
int cb_kivi_advance(struct store *s, struct device *d);
/* Before slots change: keep[n] stay; rows that are not quantised move as well. */
int cb_kivi_keep(struct store *s, int kv, const int *keep, int n);
void cb_kivi_cut(struct store *s, int kv, int n);
/* Maps and quantised rows of `from`; the rows as ever are the caller's. */
int cb_kivi_copy(struct store *to, const struct store *from);
void cb_kivi_set(struct store *s, int kv, int v, int slot, const float *x);

static inline int cb_kivi_has(const struct store *s, int kv, int v, int slot);
/* 1: some head has quantised slots; before, all are rows as in any store */
int cb_kivi_any(const struct store *s);
/* Bytes of keys and values that are held of one head, and beside them. */
uint64_t cb_kivi_bytes(const struct store *s, int kv);
/* The same of n slots of which none was ever dropped. */
uint64_t cb_kivi_bytes_of(const struct store *s, int kv, int n);
/* Bytes of what an attention over run reads. */
uint64_t cb_kivi_run_bytes(const struct store *s, const struct kv_run *run);
uint64_t cb_kivi_value_bytes(const struct store *s, const struct kv_run *run); /* a range's */

struct kivi_store {
    struct kivi_form form_k, form_v;
    struct kv_kivi *head;  /* [n_kv] as kernels see it */
    size_t head_k, head_v; /* bytes from one KV head to the next */
    uint8_t *k, *v;
    int *rows_k, *rows_v; /* [n_kv] quantised rows in use; those of dropped slots among them */
    int32_t *map[2];      /* [n_kv][cap] keys, values; NULL: no slot was ever dropped */
};

static inline int cb_kivi_has(const struct store *s, int kv, int v, int slot)
{
    const struct kv_kivi *q = s->kivi ? &s->kivi->head[kv] : NULL;
    return q && slot < (v ? q->n_v : q->n_k);
}

#endif
