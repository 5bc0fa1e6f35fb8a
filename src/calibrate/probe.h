/* SPDX-License-Identifier: MIT */
/* probe.h - a session that keeps and reads all, and shows the attention of its tokens. */
#ifndef PROBE_H
#define PROBE_H

#include "ctxbank.h"
#include "policy/policy.h"

/* Layers come in order, once a token that is fed alone: row h of s is query head h's attention over
 * all entries, the current token among them; n_cand of them were fed as a prompt. With `prompt`,
 * the end of a prompt comes as well: row h is the sum of all its queries. */
struct probe {
    void (*look)(void *arg, int l, int n_cand, const struct scores *s);
    void *arg;
    int prompt;
};

/* One session of n_ctx tokens; p stays the caller's, until it is closed. */
int cb_probe_open(cb_model *m, const struct probe *p, int n_ctx, cb_session **out);
/* A new timeline: ids[n], the last n_step of them one by one (n_step < n). */
int cb_probe_feed(cb_session *s, const int32_t *ids, int n, int n_step,
                  const struct cb_prefill *how);

#endif
