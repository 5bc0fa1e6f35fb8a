/* SPDX-License-Identifier: MIT */
/* thread_counts.h - numbers of threads among which only a measurement can choose: a core's second
 * hardware thread, slower cores, a far node's cores and a fraction of a quota may help or not. */
#ifndef THREAD_COUNTS_H
#define THREAD_COUNTS_H

#include "affinity.h"
#include "base/buf.h"

enum { CB_THREAD_COUNTS = 12 };

struct thread_counts {
    int n, count[CB_THREAD_COUNTS]; /* [n] ascending; n 1: there is nothing to choose */
    int usual;                      /* the number without a measurement, as cb_cpus_default() */
    double quota;                   /* in processors, where it cuts the counts; 0: it does not */
};

/* quota: of the control group, in processors; 0: none. m->most is not looked at. */
int cb_thread_counts(const struct machine *m, double quota, struct thread_counts *out);
/* How fast a processor is beside others of this machine, in the kernel's units; 0: unknown.
 * sys: "/sys/devices/system/cpu" */
double cb_cpu_speed(const char *sys, int cpu);
/* Adds what the choice depends on: lines of the processor's name, the allowed processors, quota and
 * nodes. */
void cb_machine_describe(const struct machine *m, double quota, const char *name, struct buf *out);

/* The same of this machine and process; key gets the description. */
int cb_thread_counts_here(struct thread_counts *out, struct buf *key);

#endif
