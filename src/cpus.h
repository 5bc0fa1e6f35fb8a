/* SPDX-License-Identifier: MIT */
/* cpus.h - how many cores this process may use. The folders are arguments for the tests' sake. */
#ifndef CPUS_H
#define CPUS_H

#include <stddef.h>

/* Physical cores among the processors whose bits are set in allowed[n_cpu]; hardware threads of one core
 * count once. sys: "/sys/devices/system/cpu". */
int cb_cpus_cores(const char *sys, const unsigned char *allowed, int n_cpu);

/* The smallest CPU quota of the process's control group and those above it, in processors; 0 = none.
 * groups: "/proc/self/cgroup"; mount: "/sys/fs/cgroup". Both versions of control groups. */
double cb_cpus_quota(const char *groups, const char *mount);

int cb_cpus_default(
    void); /* at least 1: cores that affinity allows, no more than the quota, rounded up */

/* "AMD EPYC, family 25 model 17, 2 processors" -> buf. cpuinfo: "/proc/cpuinfo"; what it does not say is
 * left out. */
void cb_cpus_name(const char *cpuinfo, char *buf, size_t cap);

#endif
