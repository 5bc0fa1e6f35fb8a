/* SPDX-License-Identifier: MIT */
/* control_groups.c - walks the groups of a process up to the root. */
#include "control_groups.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "words.h"

enum { PATH = 4096 };

/* The least limit of base/group and of the groups above it, base included. Inside a container the
 * group's own path may be missing: then the mount's root is the group. */
static double least_up(const char *base, const char *group, cb_group_limit limit)
{
    char folder[PATH];
    const size_t n_base = strlen(base);
    double least = INFINITY;

    snprintf(folder, sizeof folder, "%s%s", base, group);
    for (;;) {
        char *slash;
        least = fmin(least, limit(folder));
        slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < n_base)
            return least;
        *slash = '\0';
    }
}

/* A line of /proc/self/cgroup: "0::/group" (version 2) or "4:cpu,cpuacct:/group" */
static double line_limit(char *line, const char *mount, const char *controller, cb_group_limit v1,
                         cb_group_limit v2)
{
    char base[PATH];
    char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;

    if (!group)
        return INFINITY;
    *group++ = '\0';
    names++;
    group[strcspn(group, "\n")] = '\0';
    if (!*names)
        return least_up(mount, group, v2);
    if (cb_word_index(names, ',', controller, strlen(controller)) < 0)
        return INFINITY;
    snprintf(base, sizeof base, "%s/%s", mount, controller);
    if (access(base, F_OK))
        snprintf(base, sizeof base, "%s/%s", mount, names);
    return least_up(base, group, v1);
}

double cb_group_least(const char *groups, const char *mount, const char *controller,
                      cb_group_limit v1, cb_group_limit v2)
{
    FILE *f = fopen(groups, "r");
    char line[PATH];
    double least = INFINITY;

    if (!f)
        return INFINITY;
    while (fgets(line, sizeof line, f))
        least = fmin(least, line_limit(line, mount, controller, v1, v2));
    fclose(f);
    return least;
}
