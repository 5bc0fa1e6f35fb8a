/* SPDX-License-Identifier: MIT */
/* backoff.c - a thread leaves the work to others if waits for it exceed a quarter of its time. */
#include "backoff.h"

enum {
    WAIT_MIN_NS = 1000000,
    PAUSE_MIN_NS = 2000000,
    PAUSE_MAX_NS = 64000000,
    FORGET_NS = 100000000 /* older waits do not count */
};

const struct backoff cb_backoff_none = { .pause_ns = PAUSE_MIN_NS };

void cb_backoff_judge(struct backoff *l, long lost, int64_t slept_ns, int64_t now_ns)
{
    if (lost == l->lost)
        return;
    l->lost = lost;
    l->wait_ns += now_ns - slept_ns;
    if (now_ns - l->back_ns > FORGET_NS) {
        cb_backoff_back(l, now_ns);
        l->pause_ns = PAUSE_MIN_NS;
    } else if (l->wait_ns > WAIT_MIN_NS && 4 * l->wait_ns > now_ns - l->back_ns) {
        l->until_ns = now_ns + l->pause_ns;
        l->pause_ns *= l->pause_ns < PAUSE_MAX_NS ? 2 : 1;
    }
}

void cb_backoff_back(struct backoff *l, int64_t now_ns)
{
    l->back_ns = now_ns;
    l->wait_ns = 0;
    l->until_ns = 0;
}
