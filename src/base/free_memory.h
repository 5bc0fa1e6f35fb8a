/* SPDX-License-Identifier: MIT */
/* free_memory.h - how much memory this process can still get. */
#ifndef FREE_MEMORY_H
#define FREE_MEMORY_H

#include <stdint.h>

/* Bytes without swapping, and within the limits of the process's control groups; 0: the kernel does
 * not say. Caches of files count as free. */
uint64_t cb_free_bytes(void);
/* The same by other files than "/proc/meminfo", "/proc/self/cgroup" and "/sys/fs/cgroup" */
uint64_t cb_free_bytes_by(const char *meminfo, const char *groups, const char *mount);

#endif
