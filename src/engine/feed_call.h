/* SPDX-License-Identifier: MIT */
/* feed_call.h - a call that feeds sessions of one model, with the device's lock held. */
#ifndef FEED_CALL_H
#define FEED_CALL_H

#include "session.h"

struct feed_call {
    struct cb_session *const *s;
    int n_session;
    const int32_t *tokens;
    int n;
    const struct cb_prefill *how;
    int (*body)(const struct feed_call *c);
    int status;
};

/* Can these tokens be fed now? The context limits slots, not tokens: a policy that drops tokens can
 * continue for ever. */
int cb_feed_check(const struct cb_session *s, const int32_t *tokens, int n);
/* Runs the body in the team of threads, with the device's lock held. Fails, as cb_device_lock()
 * does, when called from a callback. */
int cb_feed_run(struct feed_call *c, int decoding);

#endif
