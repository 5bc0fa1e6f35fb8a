/* SPDX-License-Identifier: MIT */
/* thread_counts.c - numbers of threads that may be the fastest on a machine. */
#include "thread_counts.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/file.h"
#include "base/number.h"
#include "cpus.h"

/* A core below this share of the next faster one's speed is of another kind. Boost clocks of equal
 * cores differ by less. */
static const double slower = 0.85;

double cb_cpu_speed(const char *sys, int cpu)
{
    static const char *const file[] = { "cpu_capacity", "acpi_cppc/highest_perf",
                                        "cpufreq/cpuinfo_max_freq" };
    char path[4096], line[64];

    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        snprintf(path, sizeof path, "%s/cpu%d/%s", sys, cpu, file[i]);
        if (cb_file_first_line(path, line, sizeof line) && cb_number(line, NULL) > 0)
            return cb_number(line, NULL);
    }
    return 0;
}

/* ---- counts ---- */

static void add(struct thread_counts *c, int n)
{
    int at = c->n;

    if (n < 1 || c->n == CB_THREAD_COUNTS)
        return;
    for (int i = 0; i < c->n; i++)
        if (c->count[i] == n)
            return;
    for (; at > 0 && c->count[at - 1] > n; at--)
        c->count[at] = c->count[at - 1];
    c->count[at] = n;
    c->n++;
}

static int faster_first(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The speed of the first allowed processor of each core -> speed[]; returns the cores. */
static int core_speeds(const struct machine *m, double *speed)
{
    unsigned char seen[CB_MAX_CPU] = { 0 };
    int n = 0;

    for (int cpu = 0; cpu < m->n_cpu; cpu++) {
        int core = m->allowed[cpu] ? cb_cpus_core_of(m->cpu_dir, cpu) : -1;
        if (!m->allowed[cpu])
            continue;
        core = core < 0 || core >= CB_MAX_CPU ? cpu : core;
        if (!seen[core])
            speed[n++] = cb_cpu_speed(m->cpu_dir, cpu);
        seen[core] = 1;
    }
    return n;
}

/* The cores of each kind and the faster ones, then all cores */
static void add_cores(const double *speed, int n, struct thread_counts *c)
{
    for (int i = 1; i < n && speed[n - 1] > 0; i++)
        if (speed[i] < slower * speed[i - 1])
            add(c, i);
    add(c, n);
}

/* Threads beyond a quota only make all of them wait for its next period. */
static void cut(struct thread_counts *c, double quota)
{
    const int most = (int)ceil(quota);
    int n = c->n;

    if (!(quota > 0) || c->count[n - 1] <= most)
        return;
    while (n && c->count[n - 1] > most)
        n--;
    c->n = n;
    add(c, (int)floor(quota));
    add(c, most);
    c->quota = quota;
}

int cb_thread_counts(const struct machine *m, double quota, struct thread_counts *out)
{
    const struct team_params near = { 0, NUMA_ISOLATE, 0 };
    double *speed = cb_calloc((size_t)m->n_cpu + 1, sizeof *speed);
    struct machine all = *m;
    struct affinity home;
    int n_core, err, logical = 0;

    *out = (struct thread_counts){ .n = 0 };
    if (!speed)
        return CB_ENOMEM;
    n_core = core_speeds(m, speed);
    qsort(speed, (size_t)n_core, sizeof *speed, faster_first);
    add_cores(speed, n_core, out);
    free(speed);
    for (int cpu = 0; cpu < m->n_cpu; cpu++)
        logical += m->allowed[cpu];
    add(out, logical);
    all.most = 0;
    err = cb_affinity_new(&all, &near, &home);
    if (err)
        return err;
    add(out, home.n_threads);
    cb_affinity_free(&home);
    cut(out, quota);
    out->usual = quota > 0 && quota < n_core ? (int)ceil(quota) : n_core > 0 ? n_core : 1;
    add(out, out->usual);
    return CB_OK;
}

/* ---- what they depend on ---- */

/* "0-3,8" of the processors whose bits are set */
static void add_list(const unsigned char *set, int n, struct buf *out)
{
    const char *comma = "";

    for (int from = 0, to; from < n; from = to + 1) {
        for (to = from; to < n && set[to]; to++)
            ;
        if (to == from)
            continue;
        cb_buf_print(out, to - from > 1 ? "%s%d-%d" : "%s%d", comma, from, to - 1);
        comma = ",";
    }
    cb_buf_text(out, "\n");
}

void cb_machine_describe(const struct machine *m, double quota, const char *name, struct buf *out)
{
    enum { MOST_NODE = 1024 };
    char path[4096], line[4096];

    cb_buf_print(out, "%s\nprocessors ", name);
    add_list(m->allowed, m->n_cpu, out);
    cb_buf_print(out, "quota %.3f\n", quota);
    for (int k = 0; k < MOST_NODE; k++) {
        snprintf(path, sizeof path, "%s/node%d/cpulist", m->node_dir, k);
        if (cb_file_first_line(path, line, sizeof line))
            cb_buf_print(out, "node %d: %s", k, line);
    }
}

int cb_thread_counts_here(struct thread_counts *out, struct buf *key)
{
    const double quota = cb_cpus_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    unsigned char *allowed = cb_calloc(CB_MAX_CPU, 1);
    struct machine m = { .cpu_dir = "/sys/devices/system/cpu",
                         .node_dir = "/sys/devices/system/node",
                         .allowed = allowed,
                         .here = sched_getcpu() };
    char name[256];
    int err = CB_OK;

    *out = (struct thread_counts){ .n = 0 };
    if (!allowed)
        return CB_ENOMEM;
    m.n_cpu = cb_cpus_allowed(allowed, CB_MAX_CPU);
    if (m.n_cpu) {
        cb_cpus_name("/proc/cpuinfo", name, sizeof name);
        cb_machine_describe(&m, quota, name, key);
        err = cb_thread_counts(&m, quota, out);
    }
    free(allowed);
    if (!err && !out->n) { /* the kernel does not say */
        out->usual = cb_cpus_default();
        add(out, out->usual);
    }
    return err;
}
