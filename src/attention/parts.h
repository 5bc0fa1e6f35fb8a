/* SPDX-License-Identifier: MIT */
/* parts.h - what attention reads, as data: each way of reading a layer makes a list of parts, which
 * are attended one by one and joined by their log-sum-exp. */
#ifndef PARTS_H
#define PARTS_H

#include "attention.h"

/* Some queries of a chunk, and entries of each KV head that they read. */
struct part {
    int first, n;   /* queries first..first+n-1 of the chunk */
    const float *q; /* the first of them, [n_head][hd]; others follow at q_stride floats */
    int q_stride;
    int causal, window; /* as in struct attn */
    int joins;          /* 1: these queries have read a part before; the results are joined */
    /* skip <= 1, of one query that joins and has given logits: a head leaves the part out where
     * what it has read before has this share of the softmax */
    float skip;
    /* which slot entry j is, in runs without idx: slot[j] for j < n_slot, after + j - n_slot behind
     */
    const int32_t *slot;
    int n_slot, after;
};

int cb_parts_open(struct attention *a);
void cb_parts_close(struct attention *a);
size_t cb_parts_bytes(const struct attention *a);

void cb_parts_clear(struct attention *a);
/* Adds a part; its runs [n_kv] are to be filled, valid until the next one -> *run. */
int cb_parts_add(struct attention *a, const struct part *p, struct kv_run **run);
/* The whole chunk c, with its own queries: the start of a part */
struct part cb_parts_of(const struct attention *a, const struct chunk *c);

int cb_parts_n(const struct attention *a);
const struct part *cb_parts_at(const struct attention *a, int i);
struct kv_run *cb_parts_runs(const struct attention *a, int i);

/* Attention of layer l over the store, without queries and runs */
struct attn cb_parts_attn(const struct attention *a, int l);
/* The same with queries, mask and runs of part i */
struct attn cb_parts_attn_of(const struct attention *a, int l, int i);

/* Attends all parts of the list -> out[c->n][n_head * hd]; returns their log-sum-exp
 * [c->n][n_head], or NULL where nobody asked (want_lse) and nothing was joined. Valid until the
 * next call. Bytes read by a decoded token are counted in the bank. */
const float *cb_parts_attend(struct attention *a, const struct chunk *c, int want_lse, float *out);

#endif
