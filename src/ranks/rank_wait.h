/* SPDX-License-Identifier: MIT */
/* rank_wait.h - how a rank waits for the others, who answer within microseconds, or compute for
 * longer. The rank tests a short wait without a pause. It sleeps through half of a long one, as
 * long as waits of this kind usually are; then each pause is a share of the time it has waited. */
#ifndef RANK_WAIT_H
#define RANK_WAIT_H

#include <stdint.h>

/* The waits of one kind so far; all zero at first */
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
