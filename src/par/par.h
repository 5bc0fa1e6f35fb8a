/* SPDX-License-Identifier: MIT */
/* par.h - a team of threads and what each of them owns. One thread uses a team at a time. */
#ifndef PAR_H
#define PAR_H

#include <stddef.h>

struct par;
struct affinity; /* affinity.h */
struct team_params;

/* 0 = physical cores that affinity and cgroup allow. Starts the threads; CB_ENOMEM if the system
 * refuses one. */
int cb_par_new(int n_threads, struct par **out);
/* If threads are bound, the calling thread is bound as well while a region is open. */
int cb_par_new_team(const struct team_params *t, struct par **out);
int cb_par_new_at(struct affinity *affinity,
                  struct par **out); /* owns *affinity's lists, even after a failure */
void cb_par_free(struct par *p);
int cb_par_threads(const struct par *p);
/* So many threads, 1 to all, work in the regions that are opened from now on; the others sleep. */
void cb_par_limit(struct par *p, int n);
int cb_par_nodes(const struct par *p); /* NUMA nodes with threads of their own; 1: none has */
const char *cb_par_note(const struct par *p); /* outcome of numa and pin; "" if not asked for */

/* Runs body on the caller's thread while the team stands ready, so that loops inside start at once.
 * Use it around a token or a prompt. */
void cb_par_run(struct par *p, void (*body)(void *ctx), void *ctx);

/* Calls fn(ctx, i, thread) once for each i in 0..n-1. Threads take the next i as they come free, so
 * a thread that lost its core does not hold the others up for long. With N nodes, threads of node k
 * take the k-th part of the items first. Memory that one loop touches first is then near the
 * threads that read it in another loop with the same parts. Results must not depend on `thread`.
 * Runs on the caller's thread alone when n or the team is 1. Not to be nested. */
typedef void (*par_fn)(void *ctx, int i, int thread);
void cb_par_for(struct par *p, int n, par_fn fn, void *ctx);

/* A thread's own work space: 64-byte aligned, grows and never shrinks, contents undefined.
 * Reserve before the loop (it may fail), then fetch inside it. */
int cb_par_reserve(struct par *p, size_t bytes_a_thread);
/* The same for thread 0 alone, which holds what all threads of a loop share */
int cb_par_reserve_shared(struct par *p, size_t bytes);
void *cb_par_scratch(const struct par *p, int thread);
size_t cb_par_scratch_bytes(const struct par *p); /* all threads together */

#endif
