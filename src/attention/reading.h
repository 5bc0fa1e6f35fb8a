/* SPDX-License-Identifier: MIT */
/* reading.h - which slots of a layer queries read: all or, while decoding, what the plan says. */
#ifndef READING_H
#define READING_H

#include "session.h"

int cb_reading_open(struct cb_session *s);
void cb_reading_close(struct cb_session *s);
size_t cb_reading_bytes(const struct cb_session *s, size_t n_most);
/* What layer l reads of each KV head -> run[n_kv]. state: the policy's own of that layer; q: the
 * first query [n_head][hd]. */
int cb_reading_runs(struct cb_session *s, int l, void *state, const float *q, struct kv_run *run);

#endif
