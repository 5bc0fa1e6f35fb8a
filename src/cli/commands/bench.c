/* SPDX-License-Identifier: MIT */
/* bench.c - ctxbank bench: tokens a second of prefill and decode, a row a test, policy and depth;
 * or single ops. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "bench_ops.h"
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
    double mean, sd; /* tokens a second */
    struct cb_memory mem;
    uint64_t rss_peak;
};

struct bench {
    const struct opts *o;
    struct engine e;
    int32_t *ids; /* [longest test] arbitrary tokens */
    int repeats;
    struct rows rows;
};

/* ---- output ---- */

static const char *const columns[] = {
    "model",
    "threads",
    "isa",
    "policy",
    "type_k",
    "type_v",
    "n_prompt",
    "n_gen",
    "depth",
    "tps_mean",
    "tps_sd",
    "kv_bytes",
    "kv_read_bytes_per_token",
    "rss_peak_bytes",
    NULL,
};

static json_t *row_json(const struct bench *b, const struct row *r)
{
    return json_pack("{s:s, s:i, s:s, s:o, s:s, s:s, s:i, s:i, s:i, s:f, s:f, s:I, s:I, s:I}",
                     "model", b->e.info.name, "threads", b->e.info.n_threads, "isa", b->e.info.isa,
                     "policy", cb_json_str(r->t.policy), "type_k", cb_opt_text(b->o, ARG_TYPE_K),
                     "type_v", cb_opt_text(b->o, ARG_TYPE_V), "n_prompt", r->t.n_prompt, "n_gen",
                     r->t.n_gen, "depth", r->t.depth, "tps_mean", r->mean, "tps_sd", r->sd,
                     "kv_bytes", (json_int_t)r->mem.kv_bytes, "kv_read_bytes_per_token",
                     (json_int_t)r->mem.kv_read_bytes_per_token, "rss_peak_bytes",
                     (json_int_t)r->rss_peak);
}

static void md_line(const json_t *row)
{
    const char *model, *isa, *policy, *type_k, *type_v;
    int threads, n_prompt, n_gen, depth, n;
    json_int_t kv, read, rss;
    double mean, sd;
    char test[64];

    json_unpack((json_t *)(uintptr_t)row,
                "{s:s, s:i, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:f, s:f, s:I, s:I, s:I}", "model",
                &model, "threads", &threads, "isa", &isa, "policy", &policy, "type_k", &type_k,
                "type_v", &type_v, "n_prompt", &n_prompt, "n_gen", &n_gen, "depth", &depth,
                "tps_mean", &mean, "tps_sd", &sd, "kv_bytes", &kv, "kv_read_bytes_per_token", &read,
                "rss_peak_bytes", &rss);
    n = n_prompt ? snprintf(test, sizeof test, "pp%d", n_prompt)
                 : snprintf(test, sizeof test, "tg%d", n_gen);
    if (depth)
        snprintf(test + n, sizeof test - (size_t)n, " @ d%d", depth);
    printf("| %s | %d | %s | %s | %s, %s | %s | %.2f ± %.2f | %.1f | %.2f | %.1f |\n", model,
           threads, isa, policy, type_k, type_v, test, mean, sd, (double)kv / 1048576,
           (double)read / 1048576, (double)rss / 1048576);
}

static struct rows table(const struct opts *o)
{
    return (struct rows){
        .format = cb_opt_text(o, ARG_FORMAT),
        .columns = columns,
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

static int one_test(struct bench *b, struct test t)
{
    struct row r = { .t = t };

    if (!t.n_prompt && !t.n_gen)
        return CB_OK;
    TRY(measure(b, &r));
    return cb_rows_put(&b->rows, row_json(b, &r));
}

static int all_tests(struct bench *b)
{
    int n_policy, n_depth, n_prompt, n_gen;
    const char *const *policy = cb_opt_texts(b->o, ARG_POLICIES, &n_policy);
    const int64_t *depth = cb_opt_ints(b->o, ARG_BENCH_DEPTH, &n_depth);
    const int64_t *prompt = cb_opt_ints(b->o, ARG_BENCH_PROMPT, &n_prompt);
    const int64_t *gen = cb_opt_ints(b->o, ARG_BENCH_GEN, &n_gen);

    for (int i = 0; i < n_policy; i++)
        for (int d = 0; d < n_depth; d++) {
            for (int p = 0; p < n_prompt; p++)
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

static int models(const struct opts *o)
{
    struct bench b = { .o = o, .repeats = cb_opt_int(o, ARG_REPEATS), .rows = table(o) };
    int rc = cb_engine_open(o, &b.e);

    if (!rc)
        rc = make_tokens(&b);
    if (!rc) {
        cb_rows_begin(&b.rows);
        rc = all_tests(&b);
        cb_rows_end(&b.rows);
    }
    free(b.ids);
    cb_engine_close(&b.e);
    return rc;
}

static int run(const struct opts *o)
{
    int rc;

    if (cb_opt_set(o, ARG_ONLY) && !cb_opt_flag(o, ARG_OPS))
        return cb_usage("--only: goes with --ops");
    cb_interrupt_catch();
    rc = cb_opt_flag(o, ARG_OPS) ? cb_bench_ops_run(o) : models(o);
    return cb_interrupt_status(rc);
}

const struct cmd cb_cmd_bench = {
    .name = "bench",
    .operands = "",
    .brief = "measure tokens a second of prompts and answers, or single ops",
    .sets = SET_OWN_BENCH | SET_MODEL | SET_ENGINE | SET_POLICIES | SET_GENERAL,
    .run = run,
};
