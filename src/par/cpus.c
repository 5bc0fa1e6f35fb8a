/* SPDX-License-Identifier: MIT */
/* cpus.c - how many cores this process may use: affinity, hardware threads, control groups. */
#include "cpus.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/control_groups.h"
#include "base/file.h"
#include "base/free_memory.h"
#include "base/ints.h"
#include "base/number.h"

enum { MAX_CPU = CB_MAX_CPU, MOST_NODE = 1024, PATH = 4096 };

/* ---- cores ---- */

int cb_cpus_core_of(const char *sys, int cpu)
{
    static const char *const file[] = { "core_cpus_list",
                                        "thread_siblings_list" }; /* new, old name */
    char path[PATH], line[256];

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/cpu%d/topology/%s", sys, cpu, file[i]);
        if (cb_file_first_line(path, line, sizeof line) && *line >= '0' && *line <= '9')
            return (int)strtol(line, NULL, 10);
    }
    return cpu;
}

int cb_cpus_cores(const char *sys, const unsigned char *allowed, int n_cpu)
{
    unsigned char seen[MAX_CPU] = { 0 };
    int n = 0;

    for (int cpu = 0; cpu < n_cpu && cpu < MAX_CPU; cpu++) {
        int core;
        if (!allowed[cpu])
            continue;
        core = cb_cpus_core_of(sys, cpu);
        if (core < 0 || core >= MAX_CPU)
            core = cpu;
        n += !seen[core];
        seen[core] = 1;
    }
    return n;
}

static int is_on(const char *sys, int cpu, int node)
{
    char path[PATH];

    snprintf(path, sizeof path, "%s/cpu%d/node%d", sys, cpu, node);
    return !access(path, F_OK);
}

int cb_cpus_node(const char *sys, const unsigned char *allowed, int n_cpu)
{
    int node = -1;

    for (int cpu = 0; cpu < n_cpu; cpu++) {
        if (!allowed[cpu])
            continue;
        for (int i = 0; node < 0 && i < MOST_NODE; i++)
            node = is_on(sys, cpu, i) ? i : -1;
        if (node < 0 || !is_on(sys, cpu, node))
            return -1;
    }
    return node;
}

/* ---- control groups ---- */

/* max / period; INFINITY: no quota */
static double quotient(double max, double period)
{
    return max > 0 && period > 0 ? max / period : INFINITY;
}

/* "MAX PERIOD" in microseconds, or "max PERIOD" */
static double quota_v2(const char *folder)
{
    char path[PATH + 32], line[64], *end;
    double max;

    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!cb_file_first_line(path, line, sizeof line))
        return INFINITY;
    max = cb_number(line, &end);
    return quotient(max, cb_number(end, NULL));
}

/* -1 means no quota */
static double quota_v1(const char *folder)
{
    char path[PATH + 32], quota[64], period[64];

    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!cb_file_first_line(path, quota, sizeof quota))
        return INFINITY;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!cb_file_first_line(path, period, sizeof period))
        return INFINITY;
    return quotient(cb_number(quota, NULL), cb_number(period, NULL));
}

double cb_cpus_quota(const char *groups, const char *mount)
{
    const double least = cb_group_least(groups, mount, "cpu", quota_v1, quota_v2);

    return least < INFINITY ? least : 0;
}

/* ---- name ---- */

/* The value of "key : value", its line end cut off; NULL: another key */
static const char *value_of(char *line, const char *key)
{
    const size_t n = strlen(key);
    char *at = line + n;

    if (strncmp(line, key, n))
        return NULL;
    at += strspn(at, " \t");
    if (*at != ':')
        return NULL;
    at += 1 + strspn(at + 1, " \t");
    at[strcspn(at, "\n")] = '\0';
    return at;
}

void cb_cpus_name(const char *cpuinfo, char *buf, size_t cap)
{
    static const char *const key[] = { "model name", "cpu family", "model" };
    char part[3][80] = { "", "", "" }, line[512], id[200] = "";
    FILE *f = fopen(cpuinfo, "r");
    int n = 0;

    while (f && fgets(line, sizeof line, f)) {
        n += value_of(line, "processor") != NULL;
        for (int i = 0; i < 3; i++) {
            const char *v = *part[i] ? NULL : value_of(line, key[i]);
            if (v)
                snprintf(part[i], sizeof part[i], "%.79s", v);
        }
    }
    if (f)
        fclose(f);
    if (*part[1])
        snprintf(id, sizeof id, "family %s model %s, ", part[1], part[2]);
    snprintf(buf, cap, "%s%s%s%d processor%s", part[0], *part[0] ? ", " : "", id, n,
             n == 1 ? "" : "s");
}

/* ---- caches ---- */

/* Processors in a list such as "0-3,8" */
static int count(const char *list)
{
    int n = 0;

    while (*list >= '0' && *list <= '9') {
        char *end;
        const long from = strtol(list, &end, 10),
                   to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        n += to >= from && to < MAX_CPU ? (int)(to - from) + 1 : 0;
        list = end + (*end == ',');
    }
    return n;
}

static int cache_line(const char *sys, int i, const char *file, char *line, int cap)
{
    char path[PATH];

    snprintf(path, sizeof path, "%s/cpu0/cache/index%d/%s", sys, i, file);
    return cb_file_first_line(path, line, cap);
}

int cb_cpus_cache(const char *sys, int i, struct cpu_cache *out)
{
    char level[32], kind[32], size[32], list[256], *unit;
    unsigned long long bytes;

    if (!cache_line(sys, i, "level", level, sizeof level) ||
        !cache_line(sys, i, "type", kind, sizeof kind) ||
        !cache_line(sys, i, "size", size, sizeof size))
        return 0;
    *out = (struct cpu_cache){ .level = (int)strtol(level, NULL, 10), .kind = *kind, .n_cpu = 1 };
    bytes = strtoull(size, &unit, 10);
    out->bytes = bytes << (*unit == 'K' ? 10 : *unit == 'M' ? 20 : 0);
    if (cache_line(sys, i, "shared_cpu_list", list, sizeof list) && count(list))
        out->n_cpu = count(list);
    return 1;
}

uint64_t cb_cpus_last_caches(const char *sys)
{
    struct cpu_cache c, last = { .bytes = 0, .n_cpu = 1 };
    unsigned char allowed[MAX_CPU];
    const int end = cb_cpus_allowed(allowed, MAX_CPU);
    int n = 0;

    for (int i = 0; i < end; i++)
        n += allowed[i];
    for (int i = 0; cb_cpus_cache(sys, i, &c); i++)
        last = c.level >= last.level ? c : last;
    /* each of the n processors may have a cache of its own */
    return last.bytes * (uint64_t)min_int(n, (end + last.n_cpu - 1) / last.n_cpu);
}

size_t cb_cpus_cold_bytes(const char *sys, int times)
{
    const uint64_t want = (uint64_t)times * cb_cpus_last_caches(sys), most = cb_free_bytes() / 4;
    const uint64_t least = 512 << 20, bytes = want > least ? want : least;

    return (size_t)(!most || bytes < most ? bytes : most);
}

/* ---- both ---- */

int cb_cpus_allowed(unsigned char *allowed, int n_cpu)
{
    cpu_set_t *set = CPU_ALLOC(MAX_CPU);
    const size_t size = CPU_ALLOC_SIZE(MAX_CPU);
    int n = 0;

    if (set && !sched_getaffinity(0, size, set))
        for (int i = 0; i < n_cpu && i < MAX_CPU; i++) {
            allowed[i] = CPU_ISSET_S(i, size, set) != 0;
            n = allowed[i] ? i + 1 : n;
        }
    if (set)
        CPU_FREE(set);
    return n;
}

int cb_cpus_default(void)
{
    unsigned char allowed[MAX_CPU];
    const double quota = cb_cpus_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    int n = cb_cpus_allowed(allowed, MAX_CPU);

    if (n) {
        n = cb_cpus_cores("/sys/devices/system/cpu", allowed, n);
    } else {
        const long online = sysconf(_SC_NPROCESSORS_ONLN);
        n = online > 0 ? (int)online : 1;
    }
    if (quota > 0 && quota < n)
        n = (int)ceil(quota);
    return n > 0 ? n : 1;
}
