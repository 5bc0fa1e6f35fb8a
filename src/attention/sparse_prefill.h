/* SPDX-License-Identifier: MIT */
/* sparse_prefill.h - prompts of which most layers read a part alone. */
#ifndef PREFILL_H
#define PREFILL_H

#include "session.h"

int cb_prefill_open(struct cb_session *s, const char *spec); /* nothing where it is dense */
void cb_prefill_close(struct cb_session *s);
int cb_prefill_is(const struct cb_session *s); /* 1: some layers read a part */

/* Of the feed at hand, how many tokens from its i-th on may go through a layer at once. */
int cb_prefill_room(const struct cb_session *s, int i);
/* Tokens at positions pos0..pos0+n-1 are stored in layer l: where they do not read all, what they
 * read instead -> run[n_kv], causal, and 1. */
int cb_prefill_runs(struct cb_session *s, int l, int pos0, int n, struct kv_run *run);
/* They have attended: q at a stride, in a feed that ends before pos_end. A layer that chooses does.
 */
void cb_prefill_chose(struct cb_session *s, int l, const float *q, int stride, int n, int pos0,
                      int pos_end);
/* Did the newest tokens of the feed read a part of layer l alone? */
int cb_prefill_partly(const struct cb_session *s, int l);

#endif
