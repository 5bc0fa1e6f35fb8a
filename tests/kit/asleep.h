/* SPDX-License-Identifier: MIT */
/* asleep.h - whether a thread of this process sleeps, so that tests wait for that and not for a
 * time. */
#ifndef ASLEEP_H
#define ASLEEP_H

int cb_asleep(int tid);        /* 1: it waits in the kernel; 0: it computes, or could */
void cb_until_asleep(int tid); /* returns when it sleeps */

#endif
