/* SPDX-License-Identifier: MIT */
/* team_openmp.c - a team on the OpenMP runtime, for host programs that use OpenMP and want one set
 * of threads. The runtime starts threads when the first region opens, and may end the process if
 * the system refuses one. */
#include "team.h"

#include <omp.h>
#include <stdlib.h>

#include "base/err.h"

struct team {
    int n;
    team_fn serve;
    void *arg;
};

int cb_team_start(int n, team_fn serve, void *arg, struct team **out)
{
    struct team *t = cb_calloc(1, sizeof *t);

    if (!t)
        return CB_ENOMEM;
    *t = (struct team){ n, serve, arg };
    *out = t;
    return CB_OK;
}

void cb_team_run(struct team *t, void (*body)(void *ctx), void *ctx)
{
#pragma omp parallel num_threads(t->n)
    {
        if (omp_get_thread_num() == 0)
            body(ctx);
        else
            t->serve(t->arg, omp_get_thread_num());
    }
}

void cb_team_stop(struct team *t)
{
    free(t);
}
