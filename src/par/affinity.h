/* SPDX-License-Identifier: MIT */
/* affinity.h - which processors each thread of a team may run on: nodes of memory (NUMA), cores. */
#ifndef PLACE_H
#define PLACE_H

#include "cpus.h"

enum numa_mode {
    NUMA_OFF,        /* wherever the system puts them */
    NUMA_DISTRIBUTE, /* as many on each node; each on its node */
    NUMA_ISOLATE     /* all on the caller's node */
};

int cb_numa_mode(const char *name); /* "distribute"; NULL = off; -1: unknown */

/* What a team is asked to be. */
struct team_params {
    int n_threads; /* 0 = a thread a core that may be used */
    enum numa_mode numa;
    int pin; /* 1: each thread on a core of its own, in turn where there are not as many */
};

/* The machine as it is seen. */
struct machine {
    const char *cpu_dir, *node_dir; /* /sys/devices/system/cpu and node */
    const unsigned char *allowed;   /* [n_cpu] 1: affinity allows it */
    int n_cpu;
    int here; /* the processor that the caller is on */
    int most; /* cores that a quota leaves; 0 = all */
};

/* A thread may run on set[thread]; sets are lists of processors, and may be the same one. */
struct affinity {
    int n_threads;
    int n_node;     /* with threads of their own; 1: any thread is as near as any other */
    int binds;      /* 0: sets are not filled */
    int *node;      /* [n_threads] 0..n_node-1, ascending */
    int *n_cpu;     /* [n_threads] */
    int **cpu;      /* [n_threads][n_cpu] */
    char note[160]; /* what was done or why not; "" when nothing was asked for */
};

int cb_affinity_new(const struct machine *m, const struct team_params *t, struct affinity *out);
int cb_affinity_here(const struct team_params *t, struct affinity *out); /* on this machine */
void cb_affinity_free(struct affinity *p);
/* The calling thread becomes this one of the team. */
void cb_affinity_bind(const struct affinity *p, int thread);
/* The calling thread becomes the first one for a while; was[CB_AFFINITY_BYTES] is where it could
 * run before. 0: it stays as it is, and has nothing to leave. */
enum { CB_AFFINITY_BYTES = CB_MAX_CPU / 8 };
int cb_affinity_join(const struct affinity *p, void *was);
void cb_affinity_leave(const void *was);

#endif
