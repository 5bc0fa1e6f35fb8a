/* SPDX-License-Identifier: MIT */
/* ranked.c - the ranks of a command: joined, followed, left; the plan of each. */
#include "ranked.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "cli/output/log.h"
#include "engine/in_step.h"

static atomic_int said; /* 1: why the job ends has been printed */

/* Called by a thread of the team: the command itself may be waiting for its user. */
static void on_lost(void *arg, int rank, const char *host)
{
    struct ranks *const *team = arg;

    atomic_store(&said, 1);
    fprintf(stderr, "ctxbank: rank %d of %d (%s) gives no sign of life; the job ends\n", rank,
            cb_ranks_n(*team), host);
    cb_ranks_end(*team, 1);
}

/* A slower network, for tests: seconds that each message takes more, and each byte of it */
static double test_delay(void)
{
    const char *us = getenv("CTXBANK_TEST_RANK_DELAY_US");

    return us ? strtod(us, NULL) * 1e-6 : 0;
}

static double test_byte(void)
{
    const char *rate = getenv("CTXBANK_TEST_RANK_BYTES_PER_S");
    const double x = rate ? strtod(rate, NULL) : 0;

    return x > 0 ? 1 / x : 0;
}

static int join(const struct opts *o, struct ranks **out)
{
    const struct ranks_params p = {
        .lost = on_lost, .arg = out, .delay_s = test_delay(), .byte_s = test_byte()
    };

    TRY(cb_ranks_join(&p, out));
    if (cb_ranks_me(*out) && !cb_opt_flag(o, ARG_VERBOSE))
        cb_log_level(LOG_QUIET);
    cb_log_detail("rank %d of %d on %s", cb_ranks_me(*out), cb_ranks_n(*out),
                  cb_ranks_host(*out, cb_ranks_me(*out)));
    return CB_OK;
}

/* What several ranks cannot do yet */
static int check(const struct opts *o)
{
    int n_list;
    static const struct {
        enum opt_id id;
        const char *why;
    } not_yet[] = {
        { ARG_MODELS, "the processes hold one model (-m)" },
        { ARG_UNLOAD_AFTER, "the processes hold their model until they end" },
    };

    (void)cb_opt_ints(o, ARG_BENCH_THREADS, &n_list);
    if (n_list > 1)
        return cb_usage("--threads: one number with --split: the processes open one model, once");
    if (o->cmd->no_split)
        return cb_usage("--split: not yet with ctxbank %s: %s", o->cmd->name, o->cmd->no_split);
    for (size_t i = 0; i < sizeof not_yet / sizeof *not_yet; i++)
        if (cb_opt_set(o, not_yet[i].id))
            return cb_usage("--%s: not yet with --split: %s", cb_opt_table[not_yet[i].id].name,
                            not_yet[i].why);
    if (cb_opt_set(o, ARG_BANK_DIR) && !strcmp(cb_opt_text(o, ARG_SPLIT), "layers"))
        return cb_usage("--bank-dir: not yet with --split layers: a saved bank has all layers");
    return CB_OK;
}

static int follow(const struct opts *o)
{
    struct engine e;
    int n;
    const int64_t *threads = cb_opt_ints(o, ARG_BENCH_THREADS, &n);
    int rc = cb_engine_open_threads(o, n ? (int)*threads : cb_opt_int(o, ARG_THREADS), &e);

    if (!rc)
        rc = cb_in_step_follow(e.model);
    cb_engine_close(&e);
    return rc;
}

/* Several ranks may fail for the same reason: rank 0's message comes first and ends the others. */
static void fail(struct ranks *team, int rc)
{
    const struct timespec second = { 1, 0 };
    const int me = cb_ranks_me(team);

    if (atomic_load(&said)) {
        nanosleep(&second, NULL);
    } else if (me) {
        nanosleep(&second, NULL);
        fprintf(stderr, "ctxbank: rank %d of %d (%s): %s\n", me, cb_ranks_n(team),
                cb_ranks_host(team, me), cb_error());
    } else {
        cb_log_failure(rc);
    }
    fflush(NULL);
    cb_ranks_end(team, rc == CB_USAGE || rc == CB_EARG ? 2 : 1);
}

int cb_ranked_run(struct opts *o)
{
    struct ranked r = { NULL, 0 };
    int rc;

    if (!cb_opt_set(o, ARG_SPLIT))
        return o->cmd->run(o);
    TRY(join(o, &r.team));
    o->ranked = &r;
    rc = cb_ranks_me(r.team) ? CB_OK : check(o);
    if (!rc)
        rc = cb_ranks_me(r.team) ? follow(o) : o->cmd->run(o);
    if (rc < 0 && cb_ranks_n(r.team) > 1)
        fail(r.team, rc);
    else
        cb_ranks_leave(r.team);
    return rc;
}

/* ---- reports ---- */

static json_t *plan_json(const struct rank_plan *p)
{
    json_t *j = cb_json_memory(&p->memory);

    json_object_del(j, "rss_peak_bytes"); /* nothing has run yet */
    return json_pack("{s:o, s:o, s:i, s:i, s:I}", "host", cb_json_str(p->host), "memory", j,
                     "weights_shared_by", (int)p->one_copy, "messages_per_token", (int)p->messages,
                     "sent_bytes_per_token", (json_int_t)p->sent_bytes);
}

static int print_json(const char *split, const struct rank_plan *p, int n, int n_ctx, int n_prompt,
                      int n_gen)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        cb_json_add(&list, plan_json(&p[i]));
    return cb_json_print(json_pack("{s:i, s:i, s:i, s:s, s:o}", "n_ctx", n_ctx, "prompt_tokens",
                                   n_prompt, "max_tokens", n_gen, "split", split, "ranks", list));
}

static void print_rank(int i, const struct rank_plan *p)
{
    const struct cb_memory *m = &p->memory;

    printf("rank %d on %s\n", i, p->host);
    printf("  weights      %10.1f MiB", cb_mib(m->weights_bytes));
    if (p->one_copy > 1)
        printf(", once for %d ranks of this machine\n", p->one_copy);
    else
        puts(" (mapped; what is repacked is this rank's own)");
    printf("  bank         %10.1f MiB, at most %.1f while the prompt is read\n",
           cb_mib(m->kv_bytes), cb_mib(m->kv_peak_bytes));
    printf("  work space   %10.1f MiB\n", cb_mib(m->scratch_bytes));
    printf("  a token      reads %.2f MiB of the bank, ", cb_mib(m->kv_read_bytes_per_token));
    if (p->messages < 0)
        puts("sends messages whose number depends on it");
    else
        printf("sends %d messages of %.1f KiB in all\n", p->messages, (double)p->sent_bytes / 1024);
}

int cb_ranked_print_plan(const struct opts *o, struct engine *e, int n_prompt, int n_gen)
{
    const int n = cb_ranks_n(e->team);
    struct rank_plan *p;
    int rc;

    if (n == 1)
        return cb_print_plan(o, e, n_prompt, n_gen);
    p = cb_calloc((size_t)n, sizeof *p);
    rc = p ? cb_session_plan_ranks(e->session, n_prompt, n_gen, p) : CB_ENOMEM;
    if (!rc && cb_opt_flag(o, ARG_JSON)) {
        rc = print_json(cb_opt_text(o, ARG_SPLIT), p, n, e->n_ctx, n_prompt, n_gen);
    } else if (!rc) {
        printf("prompt %d tokens, answer up to %d, context %d over %d ranks\n", n_prompt, n_gen,
               e->n_ctx, n);
        for (int i = 0; i < n; i++)
            print_rank(i, &p[i]);
        rc = cb_out_flush();
    }
    free(p);
    return rc;
}

json_t *cb_ranked_json(const struct opts *o, const struct engine *e)
{
    const struct ranks_traffic t = cb_ranks_traffic(e->team);

    return json_pack("{s:i, s:s, s:I, s:I}", "n", cb_ranks_n(e->team), "split",
                     cb_opt_text(o, ARG_SPLIT), "messages", (json_int_t)t.calls, "sent_bytes",
                     (json_int_t)t.bytes);
}
