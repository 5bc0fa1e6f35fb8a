/* SPDX-License-Identifier: MIT */
/* affinity.c - assigns cores and nodes to threads. Reads the topology from the kernel's folders;
 * sets thread affinity and nothing else. */
#include "affinity.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "cpus.h"

enum { MAX_NODE = 256 };

static const char *const mode_name[] = {
    [NUMA_OFF] = "off", [NUMA_DISTRIBUTE] = "distribute", [NUMA_ISOLATE] = "isolate"
};

int cb_numa_mode(const char *name)
{
    for (int m = NUMA_OFF; name && m <= NUMA_ISOLATE; m++)
        if (!strcmp(name, mode_name[m]))
            return m;
    return name ? -1 : NUMA_OFF;
}

/* The nodes and cores that may be used. Nodes are numbered from 0 in order of their processors. */
struct parts {
    int n_cpu;
    int n_all, n_node; /* nodes that affinity allows; nodes in use */
    int *node;         /* [n_cpu] node of each processor; -1: not allowed */
    int *core;         /* [n_cpu] first allowed processor on the same core */
};

/* Reads a node's list, such as "0-3,8", and gives its processors the node's number. */
static void read_node(const struct machine *m, int number, int *node)
{
    char path[4096], line[4096], *at = line;

    snprintf(path, sizeof path, "%s/node%d/cpulist", m->node_dir, number);
    if (!cb_file_first_line(path, line, sizeof line))
        return;
    while (*at >= '0' && *at <= '9') {
        const long from = strtol(at, &at, 10), to = *at == '-' ? strtol(at + 1, &at, 10) : from;
        for (long c = from; c <= to && c < m->n_cpu; c++)
            node[c] = number;
        at += *at == ',';
    }
}

/* Renumbers the nodes in use from 0 in order of their processors; returns how many there are. */
static int renumber(int *node, int n_cpu)
{
    int seen[MAX_NODE], n = 0;

    for (int c = 0; c < n_cpu; c++) {
        int k = 0;
        if (node[c] < 0)
            continue;
        while (k < n && seen[k] != node[c])
            k++;
        if (k == n)
            seen[n++] = node[c];
        node[c] = k;
    }
    return n;
}

/* core[cpu] becomes the first hardware thread of cpu's core. */
static int find_cores(const struct machine *m, struct parts *p)
{
    int *name = cb_calloc((size_t)m->n_cpu, sizeof *name);

    if (!name)
        return CB_ENOMEM;
    for (int c = 0; c < m->n_cpu; c++) {
        name[c] = p->node[c] < 0 ? -1 : cb_cpus_core_of(m->cpu_dir, c);
        p->core[c] = c;
        for (int d = 0; name[c] >= 0 && d < c && p->core[c] == c; d++)
            if (name[d] == name[c])
                p->core[c] = d;
    }
    free(name);
    return CB_OK;
}

static int open_parts(const struct machine *m, enum numa_mode mode, struct parts *p)
{
    int home;

    p->n_cpu = m->n_cpu;
    p->node = cb_calloc((size_t)m->n_cpu, sizeof *p->node);
    p->core = cb_calloc((size_t)m->n_cpu, sizeof *p->core);
    if (!p->node || !p->core)
        return CB_ENOMEM;
    for (int k = 0; k < MAX_NODE; k++) /* processors that no node lists stay with node 0 */
        read_node(m, k, p->node);
    for (int c = 0; c < m->n_cpu; c++)
        p->node[c] = m->allowed[c] ? p->node[c] : -1;
    p->n_all = renumber(p->node, m->n_cpu);
    home = m->here >= 0 && m->here < m->n_cpu ? p->node[m->here] : -1;
    for (int c = 0; mode == NUMA_ISOLATE && home >= 0 && c < m->n_cpu; c++)
        if (p->node[c] != home)
            p->node[c] = -1;
    p->n_node = renumber(p->node, m->n_cpu);
    return find_cores(m, p);
}

/* Core i modulo their number *n, among the cores of a node (-1: of all nodes) */
static int nth_core(const struct parts *p, int node, int i, int *n)
{
    *n = 0;
    for (int c = 0; c < p->n_cpu; c++)
        *n += p->node[c] >= 0 && p->core[c] == c && (node < 0 || p->node[c] == node);
    i = *n ? i % *n : 0;
    for (int c = 0; c < p->n_cpu; c++)
        if (p->node[c] >= 0 && p->core[c] == c && (node < 0 || p->node[c] == node) && i-- == 0)
            return c;
    return 0;
}

/* ---- threads ---- */

static int set_cpus(const struct parts *p, struct affinity *out, int thread, int pin, int node,
                    int nth)
{
    int n_core, *list = cb_calloc((size_t)p->n_cpu, sizeof *list), n = 0;

    if (!list)
        return CB_ENOMEM;
    if (pin)
        list[n++] = nth_core(p, node, nth, &n_core);
    for (int c = 0; !pin && c < p->n_cpu; c++)
        if (p->node[c] >= 0 && (node < 0 || p->node[c] == node))
            list[n++] = c;
    out->cpu[thread] = list;
    out->n_cpu[thread] = n;
    return CB_OK;
}

static int deal(const struct parts *p, const struct team_params *t, struct affinity *out)
{
    const int n = out->n_threads;

    for (int i = 0, first = 0; out->binds && i < n; i++) {
        const int many = out->n_node > 1;
        out->node[i] = i * out->n_node / n;
        if (i && out->node[i] != out->node[i - 1])
            first = i;
        TRY(set_cpus(p, out, i, t->pin, many ? out->node[i] : -1, i - first));
    }
    return CB_OK;
}

static void write_note(const struct parts *p, const struct team_params *t, struct affinity *out)
{
    const char *pinned = t->pin ? ", each on one core" : "";
    char *note = out->note;

    if (t->numa == NUMA_OFF)
        snprintf(note, sizeof out->note, "%s%d threads%s", t->pin ? "pin: " : "", out->n_threads,
                 pinned);
    else if (p->n_all == 1)
        snprintf(note, sizeof out->note, "numa %s: the machine has one node, nothing to do%s",
                 mode_name[t->numa], t->pin ? "; each thread on one core" : "");
    else if (t->numa == NUMA_ISOLATE)
        snprintf(note, sizeof out->note, "numa isolate: %d threads on one of %d nodes%s",
                 out->n_threads, p->n_all, pinned);
    else
        snprintf(note, sizeof out->note, "numa distribute: %d threads on %d nodes%s",
                 out->n_threads, out->n_node, pinned);
}

static int alloc(struct affinity *p, int n)
{
    p->n_threads = n;
    p->node = cb_calloc((size_t)n, sizeof *p->node);
    p->n_cpu = cb_calloc((size_t)n, sizeof *p->n_cpu);
    p->cpu = cb_calloc((size_t)n, sizeof *p->cpu);
    return p->node && p->n_cpu && p->cpu ? CB_OK : CB_ENOMEM;
}

static int fill(const struct machine *m, const struct team_params *t, struct parts *p,
                struct affinity *out)
{
    int n = t->n_threads, n_core;

    TRY(open_parts(m, t->numa, p));
    nth_core(p, -1, 0, &n_core);
    if (!n)
        n = m->most && m->most < n_core ? m->most : n_core;
    TRY(alloc(out, n > 0 ? n : 1));
    out->binds = t->pin || (t->numa != NUMA_OFF && p->n_all > 1);
    if (t->numa == NUMA_DISTRIBUTE)
        out->n_node = p->n_node < out->n_threads ? p->n_node : out->n_threads;
    write_note(p, t, out);
    return deal(p, t, out);
}

int cb_affinity_new(const struct machine *m, const struct team_params *t, struct affinity *out)
{
    struct parts p = { 0 };
    int err;

    *out = (struct affinity){ .n_node = 1 };
    err = fill(m, t, &p, out);
    free(p.node);
    free(p.core);
    if (err)
        cb_affinity_free(out);
    return err;
}

/* Many more threads than processors make a program that does not end: each loop waits for all. */
static int sensible(int n_threads, struct affinity *out)
{
    enum { A_PROCESSOR = 8 };
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const int most = A_PROCESSOR * (online > 0 ? (int)online : 1);

    if (n_threads <= most)
        return n_threads;
    snprintf(out->note, sizeof out->note, "threads: %d, since %d are too many for %ld processors",
             most, n_threads, online);
    return most;
}

int cb_affinity_here(const struct team_params *given, struct affinity *out)
{
    struct affinity said = { .note = "" };
    struct team_params t = *given;
    unsigned char *allowed;
    struct machine m = { .cpu_dir = "/sys/devices/system/cpu",
                         .node_dir = "/sys/devices/system/node",
                         .here = sched_getcpu() };
    int err;

    t.n_threads = sensible(t.n_threads, &said);
    if (t.numa == NUMA_OFF && !t.pin) {
        *out = (struct affinity){ .n_node = 1 };
        memcpy(out->note, said.note, sizeof said.note);
        err = alloc(out, t.n_threads ? t.n_threads : cb_cpus_default());
        if (err)
            cb_affinity_free(out);
        return err;
    }
    m.allowed = allowed = cb_calloc(CB_MAX_CPU, 1);
    if (!allowed)
        return CB_ENOMEM;
    m.n_cpu = cb_cpus_allowed(allowed, CB_MAX_CPU);
    m.most = cb_cpus_default();
    err = cb_affinity_new(&m, &t, out);
    free(allowed);
    return err;
}

void cb_affinity_free(struct affinity *p)
{
    for (int i = 0; p->cpu && i < p->n_threads; i++)
        free(p->cpu[i]);
    free(p->cpu);
    free(p->n_cpu);
    free(p->node);
    *p = (struct affinity){ 0 };
}

void cb_affinity_bind(const struct affinity *p, int thread)
{
    const size_t size = CPU_ALLOC_SIZE(CB_MAX_CPU);
    cpu_set_t *set = p->binds ? CPU_ALLOC(CB_MAX_CPU) : NULL;

    if (!set)
        return;
    CPU_ZERO_S(size, set);
    for (int i = 0; i < p->n_cpu[thread]; i++)
        CPU_SET_S((size_t)p->cpu[thread][i], size, set);
    sched_setaffinity(0, size, set); /* if refused, the thread runs anywhere */
    CPU_FREE(set);
}

int cb_affinity_join(const struct affinity *p, void *was)
{
    if (!p->binds || sched_getaffinity(0, CB_AFFINITY_BYTES, was))
        return 0;
    cb_affinity_bind(p, 0);
    return 1;
}

void cb_affinity_leave(const void *was)
{
    sched_setaffinity(0, CB_AFFINITY_BYTES, was);
}
