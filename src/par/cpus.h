/* SPDX-License-Identifier: MIT */
/* cpus.h - how many cores this process may use. The folders are arguments for the tests' sake. */
#ifndef CPUS_H
#define CPUS_H

#include <stddef.h>

enum { CB_MAX_CPU = 8192 };

/* The first line of a file; 1 = read */
int cb_cpus_line(const char *path, char *buf, int cap);
/* The lowest processor on the same core; itself where the kernel does not say. */
int cb_cpus_core_of(const char *sys, int cpu);
/* Affinity -> allowed[n_cpu], 1 for each processor that the caller may run on; returns the highest
 * of them plus one, 0 when the kernel does not say. */
int cb_cpus_allowed(unsigned char *allowed, int n_cpu);

/* Physical cores among the processors whose bits are set in allowed[n_cpu]; hardware threads of one
 * core count once. sys: "/sys/devices/system/cpu". */
int cb_cpus_cores(const char *sys, const unsigned char *allowed, int n_cpu);

/* The smallest CPU quota of the process's control group and those above it, in processors; 0 =
 * none. groups: "/proc/self/cgroup"; mount: "/sys/fs/cgroup". Both versions of control groups. */
double cb_cpus_quota(const char *groups, const char *mount);

int cb_cpus_default(
    void); /* at least 1: cores that affinity allows, no more than the quota, rounded up */

/* "AMD EPYC, family 25 model 17, 2 processors" -> buf. cpuinfo: "/proc/cpuinfo"; what it does not
 * say is left out. */
void cb_cpus_name(const char *cpuinfo, char *buf, size_t cap);

#endif
