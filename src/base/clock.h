/* SPDX-License-Identifier: MIT */
/* clock.h - seconds of the monotonic clock, for all that is timed: it does not jump. */
#ifndef CLOCK_H
#define CLOCK_H

#include <pthread.h>
#include <time.h>

static inline double cb_now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The clock of conditions that end a wait in time. macOS has no other one for them. */
#ifdef __APPLE__
#define COND_CLOCK                      CLOCK_REALTIME
#define pthread_condattr_setclock(a, c) ((void)(a))
#else
#define COND_CLOCK CLOCK_MONOTONIC
#endif

/* The time `seconds` from now, for pthread_cond_timedwait() on a condition of cb_clock_cond() */
static inline struct timespec cb_clock_in(double seconds)
{
    struct timespec t;

    clock_gettime(COND_CLOCK, &t);
    seconds += (double)t.tv_nsec * 1e-9;
    t.tv_sec += (time_t)seconds; /* seconds >= 0 */
    t.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9);
    return t;
}

static inline void cb_clock_cond(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, COND_CLOCK);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

#endif
