/* SPDX-License-Identifier: MIT */
/* backoff.h - when a thread of a team leaves the work to the others for a while: it loses its core
 * in the middle of items so often that waiting for it costs more than its work is worth. */
#ifndef BACKOFF_H
#define BACKOFF_H

#include <stdint.h>

struct backoff {
    _Alignas(64) long lost;   /* times that the thread has lost its core */
    int64_t back_ns, wait_ns; /* when it returned to work; waits for it since then */
    int64_t until_ns;         /* it stays away until then; 0: it works */
    int64_t pause_ns;         /* how long it stays away the next time */
};

extern const struct backoff cb_backoff_none;

/* Others waited from slept_ns to now_ns for an item of this thread, which has lost its core `lost`
 * times in all. A wait during which it kept its core is the item's own length: it does not count.
 */
void cb_backoff_judge(struct backoff *l, long lost, int64_t slept_ns, int64_t now_ns);
void cb_backoff_back(struct backoff *l, int64_t now_ns); /* the thread works again */

#endif
