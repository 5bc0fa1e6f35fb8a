/* SPDX-License-Identifier: MIT */
/* affinity.h - which processors each thread of a team may run on, by NUMA nodes and cores. */
#ifndef AFFINITY_H
#define AFFINITY_H

#include "cpus.h"

enum numa_mode {
    NUMA_OFF,        /* wherever the system puts the threads */
    NUMA_DISTRIBUTE, /* the same number on each node; a thread stays on its node */
    NUMA_ISOLATE     /* all on the caller's node */
};

int cb_numa_mode(const char *name); /* "distribute"; NULL = off; -1: unknown */

/* What the caller asks of a team. */
struct team_params {
    int n_threads; /* 0 = one thread for each core that may be used */
    enum numa_mode numa;
    int pin; /* 1: each thread on a core of its own; cores are reused if there are too few */
};

/* The machine, as the kernel describes it. */
struct machine {
    const char *cpu_dir, *node_dir; /* /sys/devices/system/cpu and node */
    const unsigned char *allowed;   /* [n_cpu] 1: affinity allows it */
    int n_cpu;
    int here; /* the processor that the caller runs on */
    int most; /* cores that a quota allows; 0 = all */
};

/* Thread t may run on the processors cpu[t][n_cpu[t]]; several threads may share one list. */
struct affinity {
    int n_threads;
    int n_node;     /* nodes that have threads; 1: all threads are equally near */
    int binds;      /* 0: threads are not bound, and the lists are empty */
    int *node;      /* [n_threads] 0..n_node-1, ascending */
    int *n_cpu;     /* [n_threads] */
    int **cpu;      /* [n_threads][n_cpu] */
    char note[160]; /* what was done, or why not; "" if nothing was asked for */
};

int cb_affinity_new(const struct machine *m, const struct team_params *t, struct affinity *out);
int cb_affinity_here(const struct team_params *t, struct affinity *out); /* on this machine */
void cb_affinity_free(struct affinity *p);
/* Binds the calling thread as this thread of the team. */
void cb_affinity_bind(const struct affinity *p, int thread);
/* Binds the calling thread as the first of the team until cb_affinity_leave(was);
 * was[CB_AFFINITY_BYTES] keeps its affinity from before. 0: nothing was changed, and there is
 * nothing to leave. */
enum { CB_AFFINITY_BYTES = CB_MAX_CPU / 8 };
int cb_affinity_join(const struct affinity *p, void *was);
void cb_affinity_leave(const void *was);

#endif
