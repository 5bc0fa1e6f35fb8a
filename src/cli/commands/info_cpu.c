/* SPDX-License-Identifier: MIT */
/* info_cpu.c - ctxbank info --cpu: the processor, its caches and memory, which kernels it runs, and
 * how fast it reads and multiplies. */
#include "info_cpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/free_memory.h"
#include "cli/cmd.h"
#include "cli/default_threads.h"
#include "cpu/tiers.h"
#include "device/device.h"
#include "info_backends.h"
#include "par/affinity.h"

static const char sys_cpu[] = "/sys/devices/system/cpu";

enum { MOST_CPU = CB_MAX_CPU, MOST_NODE = 1024 };

struct facts {
    char name[256];
    int cores, online, usable; /* usable: cores that affinity allows */
    double quota;              /* processors; 0: none */
    int nodes;
    uint64_t memory_bytes, free_bytes;
    const char *isa; /* in use */
    const struct cpu_tiers *tiers;
    double limit[LIMIT_COUNT]; /* of --measure, else 0 */
    int n_threads;
    struct thread_choice threads; /* the default */
};

/* ---- facts ---- */

static int nodes(void)
{
    int n = 0;

    for (int i = 0; i < MOST_NODE; i++) {
        char path[64];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d", i);
        n += !access(path, F_OK);
    }
    return n ? n : 1;
}

static void look(const struct opts *o, struct facts *f)
{
    const long configured = sysconf(_SC_NPROCESSORS_CONF), pages = sysconf(_SC_PHYS_PAGES);
    unsigned char cpu[MOST_CPU];
    const int n = cb_cpus_allowed(cpu, MOST_CPU);

    cb_cpus_name("/proc/cpuinfo", f->name, sizeof f->name);
    f->usable = cb_cpus_cores(sys_cpu, cpu, n);
    f->online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    memset(cpu, 1, sizeof cpu);
    f->cores = cb_cpus_cores(sys_cpu, cpu, configured > 0 ? (int)configured : 1);
    f->quota = cb_cpus_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    f->nodes = nodes();
    f->memory_bytes = pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
    f->free_bytes = cb_free_bytes();
    cb_threads_default(o, &f->threads);
}

static int measure(const struct opts *o, struct device *d, struct facts *f)
{
    if (!cb_opt_flag(o, ARG_MEASURE))
        return CB_OK;
    f->n_threads = cb_par_threads(d->par);
    return cb_device_limits(d, f->limit);
}

/* ---- forms ---- */

/* "L1d", "L3" */
static const char *cache_name(const struct cpu_cache *c, char name[16])
{
    snprintf(name, 16, "L%d%s", c->level, c->kind == 'D' ? "d" : c->kind == 'I' ? "i" : "");
    return name;
}

static json_t *json_caches(void)
{
    json_t *list = json_array();
    struct cpu_cache c;
    char name[16];

    for (int i = 0; cb_cpus_cache(sys_cpu, i, &c); i++)
        cb_json_add(&list, json_pack("{s:s, s:I, s:i}", "name", cache_name(&c, name), "bytes",
                                     (json_int_t)c.bytes, "processors", c.n_cpu));
    return list;
}

static const char *const origin_name[] = { [THREADS_GIVEN] = "cores",
                                           [THREADS_MEASURED] = "measured",
                                           [THREADS_KEPT] = "kept",
                                           [THREADS_UNSURE] = "unsure" };

static json_t *json_threads(const struct thread_choice *c)
{
    json_t *list = json_array();

    for (int i = 0; i < c->n; i++)
        cb_json_add(&list, json_pack("{s:i, s:f, s:f}", "threads", c->count[i], "token",
                                     c->speed[i].token, "prompt", c->speed[i].prompt));
    return json_pack("{s:i, s:s, s:o}", "prompt", c->prompt, "from", origin_name[c->origin],
                     "speeds", list);
}

static json_t *json_isas(const struct cpu_tiers *t)
{
    json_t *list = json_array();

    for (int i = 0; cb_cpu_isa_at(t, i); i++)
        cb_json_add(&list, json_string(cb_cpu_isa_at(t, i)));
    return list;
}

static json_t *json_next(const struct facts *f)
{
    char missing[256];
    const char *next = cb_cpu_isa_above(f->tiers, f->isa, missing, sizeof missing);

    return next ? json_pack("{s:s, s:s}", "isa", next, "missing", missing) : json_null();
}

static json_t *json_speeds(const struct facts *f)
{
    json_t *j = cb_json_limits(f->limit);

    cb_json_set(&j, "threads", json_integer(f->n_threads));
    return j;
}

static int print_json(const struct facts *f)
{
    json_t *j = json_pack("{s:s, s:i, s:i, s:i, s:f, s:i, s:o, s:o, s:i, s:I, s:I, s:s, s:o, s:o}",
                          "processor", f->name, "cores", f->cores, "online", f->online,
                          "usable_cores", f->usable, "quota", f->quota, "default_threads",
                          f->threads.token, "default_threads_of", json_threads(&f->threads),
                          "caches", json_caches(), "nodes", f->nodes, "memory_bytes",
                          (json_int_t)f->memory_bytes, "free_bytes", (json_int_t)f->free_bytes,
                          "isa", f->isa, "isas", json_isas(f->tiers), "next_isa", json_next(f));

    if (f->n_threads)
        cb_json_set(&j, "speeds", json_speeds(f));
    return cb_json_print(j);
}

static void print_caches(void)
{
    struct cpu_cache c;
    char name[16];
    int i;

    for (i = 0; cb_cpus_cache(sys_cpu, i, &c); i++) {
        const int mib = c.bytes >= 1 << 20;
        printf("%s%s %" PRIu64 " %s", i ? ", " : "caches           ", cache_name(&c, name),
               c.bytes >> (mib ? 20 : 10), mib ? "MiB" : "KiB");
        if (c.n_cpu > 1)
            printf(" for %d processors", c.n_cpu);
    }
    if (i)
        putchar('\n');
}

static void print_next(const struct facts *f)
{
    char missing[256];
    const char *next = cb_cpu_isa_above(f->tiers, f->isa, missing, sizeof missing);

    if (next && *missing)
        printf("next isa         %s: the machine lacks %s\n", next, missing);
    else if (next)
        printf("next isa         %s: the machine has it\n", next);
}

/* "8, for prompts 16", and what they were chosen among */
static void print_threads(const struct thread_choice *c)
{
    static const char *const how[] = { [THREADS_GIVEN] = "",
                                       [THREADS_MEASURED] = " (measured now",
                                       [THREADS_KEPT] = " (measured earlier",
                                       [THREADS_UNSURE] = " (not measured: the machine is busy" };
    struct thread_speed most = { 0, 0 };

    printf("default threads  %d", c->token);
    if (c->prompt != c->token)
        printf(", for prompts %d", c->prompt);
    printf("%s%s%s\n", how[c->origin], c->unkept ? ", not kept" : "",
           c->origin == THREADS_GIVEN ? "" : ")");
    for (int i = 0; i < c->n; i++) {
        most.token = c->speed[i].token > most.token ? c->speed[i].token : most.token;
        most.prompt = c->speed[i].prompt > most.prompt ? c->speed[i].prompt : most.prompt;
    }
    for (int i = 0; i < c->n; i++)
        printf("  with %-10d tokens %.0f%%, prompts %.0f%% of the fastest\n", c->count[i],
               100 * c->speed[i].token / most.token, 100 * c->speed[i].prompt / most.prompt);
}

static void print_text(const struct facts *f)
{
    printf("processor        %s\ncores            %d", f->name, f->cores);
    if (f->usable != f->cores)
        printf(", %d of them may be used", f->usable);
    if (f->quota > 0)
        printf(", a quota of %.3g processors", f->quota);
    printf("\nonline           %d logical processors\n", f->online);
    print_threads(&f->threads);
    print_caches();
    printf("memory           %.1f GiB, %.1f GiB free, %d NUMA node%s\n",
           (double)f->memory_bytes / 1073741824, (double)f->free_bytes / 1073741824, f->nodes,
           f->nodes == 1 ? "" : "s");
    printf("isa              %s (there are", f->isa);
    for (int i = 0; cb_cpu_isa_at(f->tiers, i); i++)
        printf(" %s", cb_cpu_isa_at(f->tiers, i));
    puts(")");
    print_next(f);
    if (!f->n_threads)
        return;
    printf("\nmeasured with %d thread%s:\n", f->n_threads, f->n_threads == 1 ? "" : "s");
    cb_print_limits(f->limit, 0);
}

int cb_info_cpu(const struct opts *o)
{
    const char *want = getenv("CTXBANK_ISA");
    const struct device_want any = { .isa = want && *want ? want : NULL };
    const struct team_params team = { cb_opt_int(o, ARG_THREADS),
                                      (enum numa_mode)cb_numa_mode(cb_opt_text(o, ARG_NUMA)),
                                      cb_opt_flag(o, ARG_PIN) };
    const struct team_params one = { .n_threads = 1 };
    struct facts f = { .n_threads = 0 };
    struct device *d;
    int rc;

    TRY(cb_device_open_team("cpu", cb_opt_flag(o, ARG_MEASURE) ? &team : &one, &any, &d));
    look(o, &f);
    f.isa = d->isa;
    f.tiers = cb_cpu_tiers_of(d);
    rc = measure(o, d, &f);
    if (!rc && cb_opt_flag(o, ARG_JSON))
        rc = print_json(&f);
    else if (!rc)
        print_text(&f);
    cb_device_close(d);
    return rc;
}
