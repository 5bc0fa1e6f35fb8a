/* SPDX-License-Identifier: MIT */
/* backoff.h - when a thread of a team leaves the work to the others for a while: its core is taken
 * from it so often, in the middle of an item, that waiting for it costs more than it does. */
#ifndef LEAVE_H
#define LEAVE_H

#include <stdint.h>

struct backoff {
    _Alignas(64) long lost;   /* times that the core was taken from the thread */
    int64_t back_ns, wait_ns; /* since when it works, and waits for it since then */
    int64_t until_ns;         /* it keeps away until then; 0: it works */
    int64_t pause_ns;         /* how long it will the next time */
};

extern const struct backoff cb_backoff_none;

/* Others waited from slept_ns to now_ns for an item of this thread, which has lost its core `lost`
 * times in all. Waits in which it did not are the item's own length and do not count. */
void cb_backoff_judge(struct backoff *l, long lost, int64_t slept_ns, int64_t now_ns);
void cb_backoff_back(struct backoff *l, int64_t now_ns); /* it works again */

#endif
