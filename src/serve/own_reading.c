/* SPDX-License-Identifier: MIT */
/* own_reading.c - prompts that a connection's thread reads in a session of its own. */
#include "own_reading.h"

#include "base/err.h"

int cb_own_reading(const struct own_reading *r, cb_session *session, const int32_t *ids, int n,
                   const struct cb_prefill *how)
{
    int left;

    TRY(cb_session_prefill_begin(session, ids, n, how));
    while ((left = cb_session_prefill_step(session)) > 0)
        if ((r->gone && r->gone(r->gone_arg)) || cb_scheduler_is_over(r->s->scheduler)) {
            cb_session_prefill_cancel(session);
            return cb_fail(CB_ECANCEL, "the request was cancelled");
        }
    return left;
}
