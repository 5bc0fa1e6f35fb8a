/* SPDX-License-Identifier: MIT */
/* store_kivi.h - a store whose oldest keys and values are quantised. */
#ifndef STORE_KIVI_H
#define STORE_KIVI_H

#include "device/kivi.h"
#include "store_state.h"

struct kivi_form {
    int bits;     /* 2 or 4; 0: not quantised; keys: KIVI_PLANES, see store_planes.h */
    int residual; /* newest tokens that stay f16; a multiple of the group */
    int group;    /* numbers that share a step; 0: KIVI_GROUP */
    int first;    /* first tokens that stay f16; a multiple of KIVI_GROUP but in planes */
};

/* Makes a store quantise; it was just opened with f16 rows and is empty. */
int cb_kivi_open(struct store *s, struct kivi_form k, struct kivi_form v);
int cb_kivi_mirror(struct store *s, struct device *d); /* part of cb_store_mirror() */
void cb_kivi_close(struct store *s);
/* From now on the keys of KV head kv are never quantised. Does nothing in a store that quantises no
 * keys. */
void cb_kivi_keys_stay(struct store *s, int kv);

/* Quantises what is older than the residuals: keys in whole residuals, values one by one. Keys in
 * planes are left to cb_planes_advance(). */
int cb_kivi_advance(struct store *s, struct device *d);
/* Call before slots change: keeps slots keep[n], and moves rows that are not quantised as well. */
int cb_kivi_keep(struct store *s, int kv, const int *keep, int n);
void cb_kivi_cut(struct store *s, int kv, int n);
/* For store_areas.c: quantised rows of one head, NULL if its keys (v = 0) or values are not
 * quantised; their bytes; the list `map`, made where there is none; most rows of a head, dropped
 * ones included. */
void *cb_kivi_memory(const struct store *s, int kv, int v);
size_t cb_kivi_memory_bytes(const struct store *s, int kv, int v);
int cb_kivi_need_map(struct store *s, int v);
int cb_kivi_most_rows(const struct store *s);
/* Frees pages of f16 rows from `had`, where the last call ended, up to `end`; the first `lo` rows
 * stay */
void cb_kivi_give_back(const struct store *s, int kv, int v, int lo, int had, int end);
/* A quantised slot's key (v = 0) or value */
void cb_kivi_read(const struct store *s, int kv, int v, int slot, float *x);
void cb_kivi_set(struct store *s, int kv, int v, int slot, const float *x);

static inline int cb_kivi_has(const struct store *s, int kv, int v, int slot);
/* 1: some head has quantised slots; 0: all slots are plain rows */
int cb_kivi_any(const struct store *s);
/* Bytes of one head: keys, values and maps. */
uint64_t cb_kivi_bytes(const struct store *s, int kv);
/* The same for slots first..n-1 of n, if none was ever dropped. */
uint64_t cb_kivi_bytes_of(const struct store *s, int kv, int first, int n);
uint64_t cb_kivi_old_bytes(const struct store *s, int n); /* of n slots, all quantised */
/* Bytes that attention over `run` reads. */
uint64_t cb_kivi_run_bytes(const struct store *s, const struct kv_run *run);
/* Bytes of the first plane of n slots, whose blocks are sketched; 0 without planes */
uint64_t cb_kivi_first_plane(const struct store *s, int n);
uint64_t cb_kivi_value_bytes(const struct store *s, const struct kv_run *run); /* run is a range */

struct kivi_store {
    struct kivi_form form_k, form_v;
    struct kv_kivi *head;  /* [n_kv] as the kernels read it */
    size_t head_k, head_v; /* bytes from one KV head to the next */
    uint8_t *k, *v;
    int *rows_k, *rows_v; /* [n_kv] quantised rows in use, rows of dropped slots included */
    int32_t *map[2];      /* [n_kv][cap] keys, values; NULL: no slot was ever dropped */
};

/* 1: keys are in planes, which store_planes.h fills and cuts */
static inline int cb_kivi_planes(const struct store *s)
{
    return s->kivi && s->kivi->form_k.bits == KIVI_PLANES;
}

static inline int cb_kivi_has(const struct store *s, int kv, int v, int slot)
{
    return s->kivi && cb_kivi_row_of(&s->kivi->head[kv], v, slot) >= 0;
}

#endif
