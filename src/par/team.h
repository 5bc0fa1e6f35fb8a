/* SPDX-License-Identifier: MIT */
/* team.h - the threads of a team: started once, idle between regions, joined at the end. configure
 * chooses between team_own.c and team_openmp.c. */
#ifndef TEAM_H
#define TEAM_H

struct team;

/* What threads 1..n-1 do while a region is open. It returns once the region's body has ended; if it
 * returns earlier, it is called again. */
typedef void (*team_fn)(void *arg, int thread);

/* n >= 2; the thread that opens a region is thread 0. CB_ENOMEM if the system refuses a thread. */
int cb_team_start(int n, team_fn serve, void *arg, struct team **out);
/* Runs body(ctx) on the calling thread while the others serve. Some may still be returning from
 * serve when this returns. One region at a time. */
void cb_team_run(struct team *t, void (*body)(void *ctx), void *ctx);
void cb_team_stop(struct team *t); /* NULL: nothing */

#endif
