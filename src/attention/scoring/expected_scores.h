/* SPDX-License-Identifier: MIT */
/* expected_scores.h - the attention that future queries are expected to pay to stored tokens. */
#ifndef EXPECTED_SCORES_H
#define EXPECTED_SCORES_H

#include "attention/attention.h"

int cb_expected_open(struct attention *a); /* does nothing where the plan expects no queries */
void cb_expected_close(struct attention *a);
size_t cb_expected_bytes(const struct attention *a);

/* Adds the queries of chunk c, whose prompt begins in chunk c if `first`. */
void cb_expected_chunk(struct attention *a, const struct chunk *c, int first);
/* The scores of all slots of layer l, by each query head -> out[n_head][stride] */
void cb_expected_scores(struct attention *a, int l, float *out, int stride);
/* Row r of layer l's KV head: (row[n] + eps) times the lengths of the values */
void cb_expected_by_value(struct attention *a, int l, int kv, float eps, float *row);

#endif
