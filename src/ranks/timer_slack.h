/* SPDX-License-Identifier: MIT */
/* timer_slack.h - how much later than asked for a sleeping thread may wake. */
#ifndef TIMER_SLACK_H
#define TIMER_SLACK_H

#ifdef __linux__
#include <sys/prctl.h>
/* As little as the system can, for this thread and those that it makes; otherwise 50 us, as long as
 * a message takes */
static inline void cb_timer_slack_least(void)
{
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}
#else
static inline void cb_timer_slack_least(void)
{
}
#endif

#endif
