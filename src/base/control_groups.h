/* SPDX-License-Identifier: MIT */
/* control_groups.h - the limits of a process's control groups, of versions 1 and 2. */
#ifndef CONTROL_GROUPS_H
#define CONTROL_GROUPS_H

/* A limit that a group's folder sets; INFINITY: none */
typedef double (*cb_group_limit)(const char *folder);

/* The least limit of the process's groups and of all groups above them; INFINITY: none. groups:
 * "/proc/self/cgroup"; mount: "/sys/fs/cgroup"; controller: what limits, by the name that both
 * versions have for it, such as "cpu" or "memory". */
double cb_group_least(const char *groups, const char *mount, const char *controller,
                      cb_group_limit v1, cb_group_limit v2);

#endif
