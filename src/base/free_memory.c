/* SPDX-License-Identifier: MIT */
/* free_memory.c - how much memory this process can still get. */
#include "free_memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "control_groups.h"
#include "file.h"
#include "number.h"

enum { PATH = 4096 };

/* The number after a key that begins a line of a file; -1: there is none */
static double number_of(const char *path, const char *key)
{
    FILE *f = fopen(path, "r");
    const size_t n = strlen(key);
    char line[256];
    double x = -1;

    while (f && x < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, key, n))
            x = cb_number(line + n, NULL);
    if (f)
        fclose(f);
    return x;
}

/* The number in a group's file; INFINITY: "max", or no such file */
static double number_in(const char *folder, const char *name)
{
    char path[PATH + 32], line[64];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!cb_file_first_line(path, line, sizeof line) || *line < '0' || *line > '9')
        return INFINITY;
    return cb_number(line, NULL);
}

/* What the group may still use, the caches of files that it would lose first included */
static double left(const char *folder, double limit, const char *used, const char *inactive,
                   const char *active)
{
    char path[PATH + 32];
    double use = number_in(folder, used);

    if (limit >= 0x1p60 || use == INFINITY) /* version 1 writes the largest number for no limit */
        return INFINITY;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    use -= fmax(0, number_of(path, inactive)) + fmax(0, number_of(path, active));
    return fmax(0, limit - fmax(0, use));
}

static double left_v1(const char *folder)
{
    return left(folder, number_in(folder, "memory.limit_in_bytes"), "memory.usage_in_bytes",
                "total_inactive_file ", "total_active_file ");
}

static double left_v2(const char *folder)
{
    return left(folder, fmin(number_in(folder, "memory.max"), number_in(folder, "memory.high")),
                "memory.current", "inactive_file ", "active_file ");
}

uint64_t cb_free_bytes_by(const char *meminfo, const char *groups, const char *mount)
{
    const double kib = number_of(meminfo, "MemAvailable:");

    return kib < 0 ? 0
                   : (uint64_t)fmin(kib * 1024,
                                    cb_group_least(groups, mount, "memory", left_v1, left_v2));
}

uint64_t cb_free_bytes(void)
{
    return cb_free_bytes_by("/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup");
}
