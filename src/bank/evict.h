/* SPDX-License-Identifier: MIT */
/* evict.h - a change to one layer's slots: a method asks for it, the bank checks and applies it at
 * once. Lists of slots ascend. */
#ifndef EVICT_H
#define EVICT_H

#include <stddef.h>

#include "nearest_key.h"

struct eviction;

/* ---- what a method's compact() may ask ---- */

int cb_evict_at_prompt(const struct eviction *e);   /* 1 = end of a prompt, 0 = a decode step */
int cb_evict_len(const struct eviction *e, int kv); /* slots of a KV head */
int cb_evict_mean_len(const struct eviction *e);    /* over the KV heads, rounded down */
int cb_evict_heads(const struct eviction *e);
int *cb_evict_tmp(struct eviction *e);   /* [longest KV head] scratch, owned by the eviction */
float *cb_evict_row(struct eviction *e); /* the same, of floats */
enum { CB_EVICT_KEYS = 16 };
/* Keys of a KV head as they are stored, rotated: of slots from..from+n-1, n <= CB_EVICT_KEYS ->
 * x[n][head_dim] */
void cb_evict_keys(const struct eviction *e, int kv, int from, int n, float *x);
int cb_evict_keep(struct eviction *e, int kv, const int *slot, int n);
int cb_evict_keep_all_heads(struct eviction *e, const int *slot, int n);
int cb_evict_drop(struct eviction *e, int kv, int slot); /* keeps all others */
/* For each slot of the KV head that will be dropped: the kept slot with the nearest key, or with v
 * = 1 the nearest value (nearest_key.h). Returns their number. */
int cb_evict_nearest(struct eviction *e, int kv, int v, const struct near_slot **out);

enum merge_sides { SIDES_BOTH, SIDES_KEYS, SIDES_VALUES };

/* A weighted sum replaces the kept slot `to`, computed from the values before the change: x_to =
 * (w_to x_to + sum w_from x_from) / (w_to + sum part). With part = w_from it is a weighted mean.
 * Keys and values of `to` each have one w_to: that of the last merge into them. */
struct merge {
    int to, from;
    float w_to, w_from, part;
    enum merge_sides sides; /* the other side of `to` stays as it is */
};
int cb_evict_merge(struct eviction *e, int kv, const struct merge *m);

/* ---- what attention does with it ---- */

/* who: the method's name, for messages. merge_col: the column for inverse key lengths, or -1 if the
 * method never merges. */
int cb_evict_new(struct bank *b, const char *who, int merge_col, struct eviction **out);
void cb_evict_free(struct eviction *e); /* e may be NULL */
void cb_evict_begin(struct eviction *e, int l, int prompt);
/* Work space in bytes when n_kept slots of n_most stay. */
size_t cb_evict_bytes(const struct eviction *e, int n_most, int n_kept);
int cb_evict_apply(struct eviction *e); /* applies all requests since begin; merges first */

#endif
