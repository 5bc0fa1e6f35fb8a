/* SPDX-License-Identifier: MIT */
/* bench.c - ctxbank bench: tokens a second of prefill and decode, a row a test, policy and depth;
 * or single ops. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/err.h"
#include "bench_ops.h"
#include "bench_ranks.h"
#include "cli/cmd.h"
#include "cli/output/log.h"
#include "cli/output/row_writer.h"
#include "device/device.h"

struct test {
    const char *policy;
    int n_prompt, n_gen, depth;
};

struct row {
    struct test t;
    double mean, sd;      /* tokens a second */
    struct cb_memory mem; /* of a session */
    uint64_t rss_peak;
    int n_session;
    uint64_t planned; /* bytes of all sessions' keys and values; 0: not asked for (--fit) */
};

/* Tokens a second of the same test with the first number of threads */
struct base {
    int n_threads;
    double *mean; /* [n] in the order of the rows */
    int n;
};

struct bench {
    const struct opts *o;
    struct engine e;
    int32_t *ids; /* [longest test] arbitrary tokens */
    int repeats;
    struct rows rows;
    int begun; /* 1: the table is */
    struct base base;
    int n_row; /* of these threads */
};

/* ---- threads ---- */

/* Notes the row's speed with the first number of threads. */
static int note_base(struct bench *b, double mean)
{
    if (b->base.n_threads && b->base.n_threads != b->e.info.n_threads)
        return CB_OK;
    b->base.n_threads = b->e.info.n_threads;
    TRY(cb_grow_by_one(&b->base.mean, b->base.n, sizeof *b->base.mean));
    b->base.mean[b->base.n++] = mean;
    return CB_OK;
}

/* Speed / what it would be if it grew with the threads from the first number of them */
static double efficiency(const struct bench *b, const struct row *r)
{
    if (b->n_row >= b->base.n)
        return NAN;
    return r->mean * b->base.n_threads / (b->base.mean[b->n_row] * b->e.info.n_threads);
}

/* ---- output ---- */

/* clang-format off */
#define COLUMNS                                                                                    \
    "model", "threads", "isa", "policy", "type_k", "type_v", "n_prompt", "n_gen", "depth",         \
    "tps_mean", "tps_sd", "kv_bytes", "kv_read_bytes_per_token", "rss_peak_bytes"
/* clang-format on */

static const char *const columns[] = { COLUMNS, NULL },
                         *const columns_threads[] = { COLUMNS, "efficiency", NULL },
                         *const columns_fit[] = { COLUMNS, "sessions", "planned_bytes", NULL },
                         *const columns_both[] = { COLUMNS, "efficiency", "sessions",
                                                   "planned_bytes", NULL };

static int many_threads(const struct opts *o)
{
    int n;

    (void)cb_opt_ints(o, ARG_BENCH_THREADS, &n);
    return n > 1;
}

static json_t *row_json(const struct bench *b, const struct row *r)
{
    json_t *j = json_pack(
        "{s:s, s:i, s:s, s:o, s:s, s:s, s:i, s:i, s:i, s:f, s:f, s:I, s:I, s:I}", "model",
        b->e.info.name, "threads", b->e.info.n_threads, "isa", b->e.info.isa, "policy",
        cb_json_str(r->t.policy), "type_k", b->e.chosen.type_k, "type_v", b->e.chosen.type_v,
        "n_prompt", r->t.n_prompt, "n_gen", r->t.n_gen, "depth", r->t.depth, "tps_mean", r->mean,
        "tps_sd", r->sd, "kv_bytes", (json_int_t)r->mem.kv_bytes, "kv_read_bytes_per_token",
        (json_int_t)r->mem.kv_read_bytes_per_token, "rss_peak_bytes", (json_int_t)r->rss_peak);

    if (many_threads(b->o))
        cb_json_set(&j, "efficiency", cb_json_real(efficiency(b, r)));
    if (r->planned) {
        cb_json_set(&j, "sessions", json_integer(r->n_session));
        cb_json_set(&j, "planned_bytes", json_integer((json_int_t)r->planned));
    }
    return j;
}

static void md_line(const json_t *row)
{
    const char *model, *isa, *policy, *type_k, *type_v;
    int threads, n_prompt, n_gen, depth, n, n_session = 1;
    json_int_t kv, read, rss;
    double mean, sd, share = NAN;
    char test[96], ratio[32] = "";

    json_unpack((json_t *)(uintptr_t)row,
                "{s:s, s:i, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:f, s:f, s:I, s:I, s:I, s?i}",
                "model", &model, "threads", &threads, "isa", &isa, "policy", &policy, "type_k",
                &type_k, "type_v", &type_v, "n_prompt", &n_prompt, "n_gen", &n_gen, "depth", &depth,
                "tps_mean", &mean, "tps_sd", &sd, "kv_bytes", &kv, "kv_read_bytes_per_token", &read,
                "rss_peak_bytes", &rss, "sessions", &n_session);
    n = n_prompt ? snprintf(test, sizeof test, "pp%d", n_prompt)
                 : snprintf(test, sizeof test, "tg%d", n_gen);
    if (depth)
        n += snprintf(test + n, sizeof test - (size_t)n, " @ d%d", depth);
    if (n_session > 1)
        snprintf(test + n, sizeof test - (size_t)n, " x %d", n_session);
    if (!json_unpack((json_t *)(uintptr_t)row, "{s:F}", "efficiency", &share))
        snprintf(ratio, sizeof ratio, ", %.0f %%", 100 * share);
    printf("| %s | %d | %s | %s | %s, %s | %s | %.2f ± %.2f%s | %.1f | %.2f | %.1f |\n", model,
           threads, isa, policy, type_k, type_v, test, mean, sd, ratio, (double)kv / 1048576,
           (double)read / 1048576, (double)rss / 1048576);
}

static struct rows table(const struct opts *o)
{
    const int fit = cb_opt_set(o, ARG_FIT);

    return (struct rows){
        .format = cb_opt_text(o, ARG_FORMAT),
        .columns = many_threads(o) ? fit ? columns_both : columns_threads
                   : fit           ? columns_fit
                                   : columns,
        .md_head = "| model | threads | isa | policy | K, V | test | tokens/s | bank MiB | "
                   "read MiB/token | peak RSS MiB |\n"
                   "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        .md_line = md_line,
    };
}

/* ---- measuring ---- */

/* Makes tokens in place of text: arbitrary ids, the same every time. */
static void make_ids(int32_t *ids, int n, int n_vocab)
{
    uint32_t x = 1;

    for (int i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)n_vocab);
    }
}

static int stop_asked(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    (void)done;
    (void)total;
    return cb_interrupted();
}

static int feed(struct bench *b, const int32_t *ids, int n)
{
    const struct cb_prefill how = { .progress = stop_asked };
    return n ? cb_session_prefill(b->e.session, ids, n, &how) : CB_OK;
}

/* Fills the depth, then times one run of the test -> seconds. */
static int time_once(struct bench *b, const struct test *t, double *s)
{
    double start;
    int rc = CB_OK;

    cb_session_clear(b->e.session);
    TRY(feed(b, b->ids, t->depth));
    start = cb_now_s();
    if (t->n_prompt)
        rc = feed(b, b->ids + t->depth, t->n_prompt);
    for (int i = 0; i < t->n_gen && !rc; i++)
        rc = cb_interrupted() ? CB_ECANCEL : cb_session_decode(b->e.session, b->ids[t->depth + i]);
    *s = cb_now_s() - start;
    return rc;
}

/* Resets the process's memory peak, on Linux; elsewhere the peak of all tests so far is
 * reported. */
static void reset_rss_peak(void)
{
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, "5", 1);
    close(fd);
}

static int measure(struct bench *b, struct row *r)
{
    const int n = r->t.n_prompt + r->t.n_gen;
    const struct test warm_up = {
        .n_prompt = r->t.n_prompt > 64 ? 64 : r->t.n_prompt,
        .n_gen = r->t.n_gen ? 1 : 0,
    };
    double s, sum = 0, sum2 = 0;

    TRY(cb_engine_session(b->o, &b->e, r->t.policy, r->t.depth + n));
    TRY(cb_session_want_top(b->e.session,
                            cb_opt_flag(b->o, ARG_ALL_LOGITS) ? 0 : cb_sampler_defaults().top_k));
    reset_rss_peak();
    TRY(time_once(b, &warm_up, &s));
    for (int i = 0; i < b->repeats; i++) {
        TRY(time_once(b, &r->t, &s));
        cb_log_detail("%s: %d + %d tokens at depth %d: %.4f s", r->t.policy, r->t.n_prompt,
                      r->t.n_gen, r->t.depth, s);
        sum += n / s;
        sum2 += (n / s) * (n / s);
    }
    r->mean = sum / b->repeats;
    if (b->repeats > 1)
        r->sd = sqrt(fmax(0, (sum2 - sum * r->mean) / (b->repeats - 1)));
    cb_session_memory(b->e.session, &r->mem);
    r->rss_peak = cb_rss_peak_bytes();
    return CB_OK;
}

/* ---- as many sessions as fit ---- */

enum { FIT_MOST = 1024 }; /* sessions */

/* Decodes n_gen tokens of each of n sessions together -> seconds. */
static int time_batch(struct bench *b, cb_session *const *s, int n, const struct row *r,
                      double *out)
{
    int32_t next[FIT_MOST];
    const double start = cb_now_s();

    for (int k = 0; k < r->t.n_gen; k++) {
        if (cb_interrupted())
            return CB_ECANCEL;
        for (int i = 0; i < n; i++) /* texts that differ */
            next[i] = b->ids[(r->t.depth + k + 7 * i) % (r->t.depth + r->t.n_gen)];
        TRY(cb_decode_batch(s, next, n));
    }
    *out = cb_now_s() - start;
    return CB_OK;
}

static uint64_t held(cb_session *const *s, int n)
{
    uint64_t sum = 0;
    struct cb_memory m;

    for (int i = 0; i < n; i++) {
        cb_session_memory(s[i], &m);
        sum += m.kv_bytes;
    }
    return sum;
}

/* Fills one session, which the others are copies of: they take as much memory each. */
static int run_fit(struct bench *b, struct row *r, cb_session **s)
{
    double seconds;

    TRY(feed(b, b->ids, r->t.depth));
    s[0] = b->e.session;
    for (int i = 1; i < r->n_session; i++)
        TRY(cb_session_fork(s[0], &s[i]));
    reset_rss_peak();
    TRY(time_batch(b, s, r->n_session, r, &seconds));
    r->mean = (double)r->n_session * r->t.n_gen / seconds;
    cb_session_memory(s[0], &r->mem);
    r->mem.kv_bytes = held(s, r->n_session);
    r->rss_peak = cb_rss_peak_bytes();
    return CB_OK;
}

static int measure_fit(struct bench *b, struct row *r)
{
    const uint64_t bytes = (uint64_t)cb_opt_int64(b->o, ARG_FIT);
    struct cb_memory plan;
    cb_session **s;
    int rc;

    TRY(cb_engine_session(b->o, &b->e, r->t.policy, r->t.depth + r->t.n_gen));
    TRY(cb_session_plan(b->e.session, r->t.depth, r->t.n_gen, &plan));
    r->n_session =
        plan.kv_bytes && bytes / plan.kv_bytes < FIT_MOST ? (int)(bytes / plan.kv_bytes) : FIT_MOST;
    if (!r->n_session)
        return cb_usage("--fit: %s: one context of %d tokens takes %llu bytes", r->t.policy,
                        r->t.depth + r->t.n_gen, (unsigned long long)plan.kv_bytes);
    r->planned = plan.kv_bytes * (uint64_t)r->n_session;
    s = cb_calloc((size_t)r->n_session, sizeof(cb_session *));
    if (!s)
        return CB_ENOMEM;
    rc = run_fit(b, r, s);
    for (int i = 1; i < r->n_session; i++)
        cb_session_close(s[i]);
    free(s);
    return rc;
}

/* ---- all tests ---- */

/* The table begins with its first row: what is wrong before that leaves no output. */
static void begin_table(struct bench *b)
{
    if (!b->begun)
        cb_rows_begin(&b->rows);
    b->begun = 1;
}

static int one_test(struct bench *b, struct test t)
{
    struct row r = { .t = t, .n_session = 1 };

    if (!t.n_prompt && !t.n_gen)
        return CB_OK;
    TRY(cb_opt_set(b->o, ARG_FIT) ? measure_fit(b, &r) : measure(b, &r));
    TRY(note_base(b, r.mean));
    begin_table(b);
    TRY(cb_rows_put(&b->rows, row_json(b, &r)));
    b->n_row++;
    return CB_OK;
}

static int all_tests(struct bench *b)
{
    int n_policy, n_depth, n_prompt, n_gen;
    const char *const *policy = cb_engine_policies(b->o, &b->e, &n_policy);
    const int64_t *depth = cb_opt_ints(b->o, ARG_BENCH_DEPTH, &n_depth);
    const int64_t *prompt = cb_opt_ints(b->o, ARG_BENCH_PROMPT, &n_prompt);
    const int64_t *gen = cb_opt_ints(b->o, ARG_BENCH_GEN, &n_gen);

    for (int i = 0; i < n_policy; i++)
        for (int d = 0; d < n_depth; d++) {
            for (int p = 0; p < n_prompt && !cb_opt_set(b->o, ARG_FIT); p++)
                TRY(one_test(b, (struct test){ policy[i], (int)prompt[p], 0, (int)depth[d] }));
            for (int g = 0; g < n_gen; g++)
                TRY(one_test(b, (struct test){ policy[i], 0, (int)gen[g], (int)depth[d] }));
        }
    return CB_OK;
}

static int64_t largest(const struct opts *o, enum opt_id id)
{
    int n;
    const int64_t *list = cb_opt_ints(o, id, &n);
    int64_t most = 0;

    for (int i = 0; i < n; i++)
        most = list[i] > most ? list[i] : most;
    return most;
}

static int make_tokens(struct bench *b)
{
    const int64_t p = largest(b->o, ARG_BENCH_PROMPT), g = largest(b->o, ARG_BENCH_GEN);
    const int64_t n = largest(b->o, ARG_BENCH_DEPTH) + (p > g ? p : g);

    if (n > INT32_MAX / 2)
        return cb_usage("-d: depth and test together are %lld tokens", (long long)n);
    b->ids = cb_calloc((size_t)n + 64, sizeof *b->ids);
    if (!b->ids)
        return CB_ENOMEM;
    make_ids(b->ids, (int)n + 64, b->e.info.n_vocab);
    return CB_OK;
}

/* All tests with one number of threads */
static int with_threads(struct bench *b, int n_threads)
{
    int rc = cb_engine_open_threads(b->o, n_threads, &b->e);

    b->n_row = 0;
    if (!rc && !b->ids)
        rc = make_tokens(b);
    if (!rc)
        rc = all_tests(b);
    cb_engine_close(&b->e);
    return rc;
}

static int models(const struct opts *o)
{
    struct bench b = { .o = o, .repeats = cb_opt_int(o, ARG_REPEATS), .rows = table(o) };
    int n, rc = CB_OK;
    const int64_t *threads = cb_opt_ints(o, ARG_BENCH_THREADS, &n);

    if (!cb_need_model(o))
        return CB_USAGE;
    if (!n)
        rc = with_threads(&b, 0);
    for (int i = 0; i < n && !rc; i++)
        rc = with_threads(&b, (int)threads[i]);
    if (!rc)
        begin_table(&b); /* which may be empty */
    if (b.begun)
        cb_rows_end(&b.rows);
    free(b.ids);
    free(b.base.mean);
    return rc;
}

static int run(const struct opts *o)
{
    int n;
    const int64_t *threads = cb_opt_ints(o, ARG_BENCH_THREADS, &n);
    const int ops = cb_opt_flag(o, ARG_OPS);

    if (cb_opt_set(o, ARG_ONLY) && !ops)
        return cb_usage("--only: goes with --ops");
    if (ops && n > 1)
        return cb_usage("--threads: one number with --ops");
    cb_interrupt_catch();
    if (cb_opt_set(o, ARG_BENCH_RANKS))
        return cb_interrupt_status(cb_bench_ranks_run(o, n ? (int)threads[0] : 0));
    return cb_interrupt_status(ops ? cb_bench_ops_run(o, n ? (int)threads[0] : 0) : models(o));
}

const struct cmd cb_cmd_bench = {
    .name = "bench",
    .operands = "",
    .example = "-m model.gguf -p 512 -n 64 -d 0,16384",
    .brief = "measure tokens a second of prompts and answers, or single ops",
    .sets = SET_OWN_BENCH | SET_MODEL | SET_ENGINE | SET_POLICIES | SET_GENERAL,
    .run = run,
};
