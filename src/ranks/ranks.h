/* SPDX-License-Identifier: MIT */
/* ranks.h - a team of processes, on one machine or several, that compute in step over MPI: rank 0
 * and the others. Calls of one team come from one thread, in the same order on every rank. Each
 * ends within a deadline, and names the ranks that are late. Only this room includes mpi.h; built
 * without MPI, cb_ranks_join() fails. */
#ifndef RANKS_H
#define RANKS_H

#include <stddef.h>
#include <stdint.h>

struct ranks;

enum { RANKS_MOST = 1024, RANKS_HOST = 64 };

struct ranks_params {
    double call_s;  /* a call that waits longer has failed; 0: 60 */
    double delay_s; /* each message of all ranks takes so much longer: for tests */
    double byte_s;  /* and so much more for each byte that comes from another rank */
    double life_s;  /* a rank that gives no sign of life for longer is lost; 0: 3 */
    /* Called by a thread of the team when `rank` is lost: the caller's own thread may compute, or
     * wait for a user. NULL: only calls fail. */
    void (*lost)(void *arg, int rank, const char *host);
    void *arg;
};

/* What the team has sent so far */
struct ranks_traffic {
    uint64_t calls, bytes; /* bytes: this rank's own part of each call */
};

/* 1: built with MPI */
int cb_ranks_built(void);
/* Joins the processes that mpirun or srun has started; alone, a process is rank 0 of 1. Call once
 * in a process. */
int cb_ranks_join(const struct ranks_params *p, struct ranks **out);
/* Call on every rank when all is well; waits for the others. r may be NULL. */
void cb_ranks_leave(struct ranks *r);
/* Ends all processes of the team, this one too if MPI has it so; r stays. */
void cb_ranks_end(struct ranks *r, int status);

int cb_ranks_n(const struct ranks *r);
int cb_ranks_me(const struct ranks *r);
const char *cb_ranks_host(const struct ranks *r, int rank);
struct ranks_traffic cb_ranks_traffic(const struct ranks *r);

/* The ranks of this rank's machine that say the same number, as a team of their own, within which
 * calls wait for as long as nobody is lost. Call on every rank. */
int cb_ranks_near(struct ranks *r, int number, struct ranks **out);
void cb_ranks_part(struct ranks *r); /* that team ends, on every rank of it; r may be NULL */

/* bytes of `from` -> all. `idle`: rank `from` may take any time, as it waits for a user. */
int cb_ranks_tell(struct ranks *r, int from, void *buf, size_t bytes, int idle);
/* bytes of each rank -> all[n][bytes] on every rank */
int cb_ranks_share(struct ranks *r, const void *mine, size_t bytes, void *all);
/* bytes from one rank to another, which both call; each may wait as long as the other lives */
int cb_ranks_send(struct ranks *r, int to, const void *buf, size_t bytes);
int cb_ranks_receive(struct ranks *r, int from, void *buf, size_t bytes);

#endif
