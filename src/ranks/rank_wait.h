/* SPDX-License-Identifier: MIT */
/* rank_wait.h - how a rank waits for the others, who answer within microseconds, or compute for
 * longer. A short wait is tested without a pause. Of a long one, the rank sleeps for as long as
 * the last waits of this kind have taken at least; then its pauses are a share of what the wait
 * has taken already. */
#ifndef RANK_WAIT_H
#define RANK_WAIT_H

#include <stdint.h>

/* The waits of one kind so far; all zero at the begin */
struct rank_wait {
    double usual_s; /* what a wait takes at least, mostly */
    int in_vain;    /* waits in a row that tests without a pause did not see the end of */
};

/* Nanoseconds to sleep before the next test, waited_s after the wait began; 0: test again at
 * once. crowded: ranks outnumber cores, so that a rank that tests keeps another one from
 * answering. */
int64_t cb_rank_wait_pause(const struct rank_wait *w, double waited_s, int crowded);
/* A wait has ended; least_s: when the last test came that did not see its end. */
void cb_rank_wait_learn(struct rank_wait *w, double least_s);

#endif
