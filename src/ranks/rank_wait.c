/* SPDX-License-Identifier: MIT */
/* rank_wait.c - how a rank waits for the others. */
#include "rank_wait.h"

/* TEST_S: a sleep and the wake after it take about as long, so longer testing costs more than they
 * do. LONG_S: a shorter wait ends while it is tested, or soon after. */
static const double TEST_S = 60e-6, LONG_S = 200e-6;
static const double LEAST_S = 20e-6, MOST_S = 2e-3, IDLE_S = 1, MOST_IDLE_S = 4e-3;
/* After VAIN waits that outlasted the tests, a rank sleeps at once, but tests first in every
 * TRY_EACH-th wait. */
enum { VAIN = 4, TRY_EACH = 16, MANY = 1 << 20 };

static double between(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

static int tests_first(const struct rank_wait *w, int crowded)
{
    return !crowded && (w->in_vain < VAIN || w->in_vain % TRY_EACH == 0);
}

int64_t cb_rank_wait_pause(const struct rank_wait *w, double waited_s, int crowded)
{
    const double share_s = waited_s / (crowded ? 2 : 4); /* each wake costs more in a crowd */
    double s = between(share_s, LEAST_S, waited_s > IDLE_S ? MOST_IDLE_S : MOST_S);

    if (waited_s < TEST_S && tests_first(w, crowded))
        return 0;
    if (w->usual_s > LONG_S && waited_s < w->usual_s / 2)
        s = w->usual_s / 2 - waited_s; /* half: sleeping for too long costs more than a test */
    return (int64_t)(between(s, LEAST_S, MOST_IDLE_S) * 1e9);
}

void cb_rank_wait_learn(struct rank_wait *w, double least_s)
{
    w->usual_s +=
        least_s < w->usual_s ? (least_s - w->usual_s) * 3 / 4 : (least_s - w->usual_s) / 8;
    w->in_vain = least_s < TEST_S ? 0 : w->in_vain < MANY ? w->in_vain + 1 : VAIN;
}
