/* SPDX-License-Identifier: MIT */
/* clock.h - seconds of the monotonic clock. */
#ifndef CLOCK_H
#define CLOCK_H

#include <time.h>

static inline double cb_now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
