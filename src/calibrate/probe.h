/* SPDX-License-Identifier: MIT */
/* probe.h - a session that keeps and reads everything, and reports the attention of its tokens. */
#ifndef PROBE_H
#define PROBE_H

#include "ctxbank.h"
#include "policy/policy.h"

/* look() is called for each layer in order, for every token that is fed alone. Row h of s is query
 * head h's attention over all entries, the current token among them; the first n_cand of them are
 * the prompt. With `prompt`, it is also called at the end of a prompt: row h is then the sum over
 * all queries. */
struct probe {
    void (*look)(void *arg, int l, int n_cand, const struct scores *s);
    void *arg;
    int prompt;
};

/* Opens a session of n_ctx tokens. The caller owns p and keeps it until the session is closed. */
int cb_probe_open(cb_model *m, const struct probe *p, int n_ctx, cb_session **out);
/* Starts a new timeline and feeds ids[n], the last n_step of them one by one (n_step < n). */
int cb_probe_feed(cb_session *s, const int32_t *ids, int n, int n_step,
                  const struct cb_prefill *how);

#endif
