/* SPDX-License-Identifier: MIT */
/* cpus.h - how many cores this process may use. Folders are arguments so that tests can replace
 * them. */
#ifndef CPUS_H
#define CPUS_H

#include <stddef.h>
#include <stdint.h>

enum { CB_MAX_CPU = 8192 };

/* The lowest processor on the same core; cpu itself if the kernel does not say. */
int cb_cpus_core_of(const char *sys, int cpu);
/* The NUMA node of all processors whose bits are set in allowed[n_cpu]; -1: they lie on several
 * ones, or the kernel does not say. */
int cb_cpus_node(const char *sys, const unsigned char *allowed, int n_cpu);
/* The caller's affinity -> allowed[n_cpu], 1 for each processor that it may run on; returns the
 * highest such processor plus one, 0 if the kernel does not say. */
int cb_cpus_allowed(unsigned char *allowed, int n_cpu);

/* Physical cores among the processors whose bits are set in allowed[n_cpu]; hardware threads of one
 * core count once. sys: "/sys/devices/system/cpu". */
int cb_cpus_cores(const char *sys, const unsigned char *allowed, int n_cpu);

/* The smallest CPU quota of the process's control group and the groups above it, in processors; 0 =
 * none. groups: "/proc/self/cgroup"; mount: "/sys/fs/cgroup". Both versions of control groups. */
double cb_cpus_quota(const char *groups, const char *mount);

int cb_cpus_default(
    void); /* at least 1: cores that affinity allows, no more than the quota, rounded up */

/* "AMD EPYC, family 25 model 17, 2 processors" -> buf. cpuinfo: "/proc/cpuinfo"; missing facts are
 * left out. */
void cb_cpus_name(const char *cpuinfo, char *buf, size_t cap);

/* A cache of the first processor. */
struct cpu_cache {
    int level;
    char kind; /* 'D' data, 'I' instructions, 'U' both */
    uint64_t bytes;
    int n_cpu; /* processors that share it */
};

/* Cache i -> *out; 0: there are fewer, or the kernel does not say. sys: "/sys/devices/system/cpu"
 */
int cb_cpus_cache(const char *sys, int i, struct cpu_cache *out);
/* Bytes of all last-level caches that the caller's affinity reaches; 0: the kernel does not say */
uint64_t cb_cpus_last_caches(const char *sys);
/* Bytes to read in turn, so that hardly any of them is still in a cache: `times` the last-level
 * caches, at least 512 MiB, but no more than a quarter of the free memory. */
size_t cb_cpus_cold_bytes(const char *sys, int times);

#endif
