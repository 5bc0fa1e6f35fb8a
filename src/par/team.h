/* SPDX-License-Identifier: MIT */
/* team.h - the threads of a team: started once, idle between regions, joined at the end. configure
 * chooses between team_own.c and team_openmp.c. */
#ifndef TEAM_H
#define TEAM_H

struct team;

/* What the threads 1..n-1 do while a region is open. It returns once the region's body is over,
 * and may be called again before that. */
typedef void (*team_fn)(void *arg, int thread);

/* n >= 2; the thread that opens a region is the first of them. Refused threads are CB_ENOMEM. */
int cb_team_start(int n, team_fn serve, void *arg, struct team **out);
/* Runs body(ctx) on the calling thread while the others serve. They may still be on their way out
 * of serve when this returns. One region at a time. */
void cb_team_run(struct team *t, void (*body)(void *ctx), void *ctx);
void cb_team_stop(struct team *t); /* NULL: nothing */

#endif
