/* SPDX-License-Identifier: MIT */
/* default_threads.c - the default number of threads: measured once where a machine leaves a choice,
 * and kept in the user's cache. */
#include "default_threads.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/free_memory.h"
#include "cli/output/log.h"
#include "cmd.h"
#include "par/cpus.h"

/* Threads that are bound, and those of several processes, are numbered by cores; so are those of a
 * device that is not this processor, which compute little. */
static int may_measure(const struct opts *o)
{
    const char *device = cb_opt_text(o, ARG_DEVICE);

    return !o->ranked && !cb_opt_flag(o, ARG_PIN) &&
           cb_numa_mode(cb_opt_text(o, ARG_NUMA)) == NUMA_OFF &&
           (!device || !strcmp(device, "cpu") || !strcmp(device, "auto"));
}

static void say(const struct thread_choice *c)
{
    if (c->origin == THREADS_UNSURE)
        cb_log_detail("threads: %d; measuring failed: %s", c->token, cb_error());
    else if (c->origin == THREADS_MEASURED)
        cb_log_detail("threads: %d generate, %d read prompts; measured in %.2f s%s", c->token,
                      c->prompt, c->seconds, c->unkept ? ", which could not be kept" : "");
}

static void choose(struct thread_counts *counts, struct buf *key, struct thread_choice *out)
{
    const char *isa = getenv("CTXBANK_ISA");
    struct thread_bench bench = { .most = counts->count[counts->n - 1],
                                  .isa = isa && *isa ? isa : NULL,
                                  .most_bytes = cb_free_bytes() / 8 };
    char folder[PATH_MAX];

    cb_buf_print(key, "isa %s\nversion %s\n", bench.isa ? bench.isa : "best", cb_version());
    if (key->failed)
        counts->n = 1;
    cb_thread_choose(counts, key->s,
                     counts->n > 1 ? cb_user_cache("threads", folder, sizeof folder) : NULL,
                     cb_thread_bench_time, &bench, out);
    cb_thread_bench_close(&bench);
    say(out);
}

void cb_threads_default(const struct opts *o, struct thread_choice *out)
{
    struct thread_counts counts;
    struct buf key = { 0 };
    const int usual = cb_cpus_default();

    *out = (struct thread_choice){ .token = usual, .prompt = usual };
    if (may_measure(o) && !cb_thread_counts_here(&counts, &key))
        choose(&counts, &key, out);
    cb_buf_free(&key);
}

struct thread_numbers cb_threads_of(const struct opts *o, int n_threads)
{
    struct thread_numbers n = { n_threads, cb_opt_int(o, ARG_THREADS_BATCH) };
    struct thread_choice c;

    if (n.token)
        return n;
    cb_threads_default(o, &c);
    n.token = c.token;
    if (!n.prompt)
        n.prompt = c.prompt;
    return n;
}
