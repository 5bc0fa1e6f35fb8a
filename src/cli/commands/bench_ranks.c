/* SPDX-License-Identifier: MIT */
/* bench_ranks.c - ctxbank bench --ranks: how long a token takes over more ranks than there are. The
 * model of time is fitted to this job, whose own time it must then tell:
 *
 *   token(R, n) = a + b n / R + m (alpha ceil(log2 R) + beta bytes (R - 1))
 *
 * a: what a token takes whatever the context; b: for each token of the context that a rank holds;
 * m messages of `bytes` bytes; alpha: a step of a message; beta: a byte that comes from another
 * rank. */
#include "bench_ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/output/log.h"
#include "cli/output/row_writer.h"
#include "engine/in_step.h"

enum {
    PINGS = 200,       /* messages that are timed, at most */
    FEWEST = 3,        /* and at least, where they take longer than PING_S */
    SMALL = 8,         /* bytes of a small one, which hardly take time */
    LARGE = 128 << 10, /* bytes of a large one */
    WARM = 4,          /* tokens before those that are timed */
    TOKENS = 12,       /* a measurement */
    LEAST_DEPTH = 512  /* of the first one; the others are 9 and 17 times as deep */
};

struct time_model {
    double a, b, alpha, beta; /* seconds */
    int messages;
    uint64_t bytes; /* a message, of a rank */
};

static double steps_of(int n_rank)
{
    return n_rank > 1 ? ceil(log2(n_rank)) : 0;
}

static double comm_s(const struct time_model *m, int n_rank)
{
    return n_rank < 2 ? 0
                      : m->messages * (m->alpha * steps_of(n_rank) +
                                       m->beta * (double)m->bytes * (n_rank - 1));
}

static double token_s(const struct time_model *m, int n_rank, double n_ctx)
{
    return m->a + m->b * n_ctx / n_rank + comm_s(m, n_rank);
}

/* ---- measuring ---- */

static const double PING_S = 1; /* for all messages of a size, about */

/* Seconds of a message: the mean of as many as a first one gives time for */
static int ping(cb_session *s, size_t bytes, double *out)
{
    double start;
    int n;

    TRY(cb_session_ping(s, bytes, 1));
    start = cb_now_s();
    TRY(cb_session_ping(s, bytes, 1));
    n = (int)fmin(PINGS, fmax(FEWEST, PING_S / fmax(1e-9, cb_now_s() - start)));
    TRY(cb_session_ping(s, bytes, n / 4 + 1));
    start = cb_now_s();
    TRY(cb_session_ping(s, bytes, n));
    *out = (cb_now_s() - start) / n;
    return CB_OK;
}

/* alpha and beta of this job */
static int measure_messages(cb_session *s, int n_rank, struct time_model *m)
{
    double small, large;

    TRY(ping(s, SMALL, &small));
    TRY(ping(s, LARGE, &large));
    m->beta = fmax(0, (large - small) / ((double)(LARGE - SMALL) * (n_rank - 1)));
    m->alpha = fmax(0, small - m->beta * SMALL * (n_rank - 1)) / steps_of(n_rank);
    return CB_OK;
}

static int32_t token_at(const struct engine *e, int i)
{
    return (int32_t)((uint32_t)i * 2654435761u % (uint32_t)e->info.n_vocab);
}

static int feed_to(struct engine *e, int depth)
{
    const int from = cb_session_len(e->session), n = depth - from;
    int32_t *ids = n > 0 ? cb_calloc((size_t)n, sizeof *ids) : NULL;
    int rc;

    if (n <= 0)
        return CB_OK;
    if (!ids)
        return CB_ENOMEM;
    for (int i = 0; i < n; i++)
        ids[i] = token_at(e, from + i);
    rc = cb_session_prefill(e->session, ids, n, NULL);
    free(ids);
    return rc;
}

/* The least of a few measurements: what else the machine does makes tokens slower alone. */
static int measure_token(struct engine *e, int depth, int repeats, double *out)
{
    *out = INFINITY;
    cb_session_clear(e->session);
    TRY(feed_to(e, depth));
    for (int r = 0; r < repeats; r++) {
        double start = 0;
        for (int i = 0; i < WARM + TOKENS; i++) {
            if (cb_interrupted())
                return CB_ECANCEL;
            start = i == WARM ? cb_now_s() : start;
            TRY(cb_session_decode(e->session, token_at(e, i)));
        }
        *out = fmin(*out, (cb_now_s() - start) / TOKENS);
        TRY(cb_session_truncate(e->session, depth));
    }
    return CB_OK;
}

/* ---- the table ---- */

static const char *const columns[] = { "what",    "ranks",  "context",    "token_ms",
                                       "comm_ms", "one_ms", "efficiency", NULL };

static void md_line(const json_t *row)
{
    const char *what;
    int ranks;
    json_int_t n;
    double token, comm, one, share;

    json_unpack((json_t *)(uintptr_t)row, "{s:s, s:i, s:I, s:F, s:F, s:F, s:F}", "what", &what,
                "ranks", &ranks, "context", &n, "token_ms", &token, "comm_ms", &comm, "one_ms",
                &one, "efficiency", &share);
    printf("| %s | %d | %lld | %.3f | %.3f | %.3f | %.0f %% |\n", what, ranks, (long long)n, token,
           comm, one, 100 * share);
}

static int put(struct rows *r, const char *what, const struct time_model *m, int n_rank, int64_t n,
               double token)
{
    const double one = token_s(m, 1, (double)n);

    return cb_rows_put(r, json_pack("{s:s, s:i, s:I, s:f, s:f, s:f, s:f}", "what", what, "ranks",
                                    n_rank, "context", (json_int_t)n, "token_ms", token * 1e3,
                                    "comm_ms", comm_s(m, n_rank) * 1e3, "one_ms", one * 1e3,
                                    "efficiency", one / (token * n_rank)));
}

static int predict(const struct opts *o, struct rows *r, const struct time_model *m)
{
    int n;
    const int64_t *ranks = cb_opt_ints(o, ARG_BENCH_RANKS, &n);

    for (int64_t n_ctx = 128 << 10; n_ctx <= 4 << 20; n_ctx *= 2)
        for (int i = 0; i < n; i++)
            TRY(put(r, "predicted", m, (int)ranks[i], n_ctx,
                    token_s(m, (int)ranks[i], (double)n_ctx)));
    return CB_OK;
}

/* a and b from two depths; then the time between them, as measured and as the model has it */
static int fit(const struct opts *o, struct engine *e, struct time_model *m, int depth,
               double *measured)
{
    const int n_rank = cb_ranks_n(e->team), repeats = cb_opt_int(o, ARG_REPEATS);
    double first, last;

    TRY(measure_token(e, depth, repeats, &first));
    TRY(measure_token(e, 17 * depth, repeats, &last));
    TRY(measure_token(e, 9 * depth, repeats, measured));
    m->b = fmax(0, (last - first) * n_rank / (16.0 * depth));
    m->a = fmax(0, first - m->b * depth / n_rank - comm_s(m, n_rank));
    return CB_OK;
}

static int with_session(const struct opts *o, struct engine *e, struct rows *r)
{
    const int n_rank = cb_ranks_n(e->team), depth = LEAST_DEPTH;
    struct rank_plan *plan = cb_calloc((size_t)n_rank, sizeof *plan);
    struct time_model m = { .a = 0 };
    double measured;
    int rc = plan ? cb_session_plan_ranks(e->session, depth, 1, plan) : CB_ENOMEM;

    if (!rc) {
        m.messages = plan[0].messages;
        m.bytes = plan[0].sent_bytes / (uint64_t)(m.messages > 0 ? m.messages : 1);
    }
    free(plan);
    TRY(rc);
    TRY(measure_messages(e->session, n_rank, &m));
    TRY(fit(o, e, &m, depth, &measured));
    cb_log_note("a token: %.3f ms, and %.1f ns a token of context; %d messages of %llu bytes: "
                "%.1f us a step, %.3f ns a byte",
                m.a * 1e3, m.b * 1e9, m.messages, (unsigned long long)m.bytes, m.alpha * 1e6,
                m.beta * 1e9);
    cb_rows_begin(r);
    TRY(put(r, "measured", &m, n_rank, 9 * depth, measured));
    TRY(put(r, "model", &m, n_rank, 9 * depth, token_s(&m, n_rank, 9 * depth)));
    TRY(predict(o, r, &m));
    cb_rows_end(r);
    return CB_OK;
}

int cb_bench_ranks_run(const struct opts *o, int n_threads)
{
    struct rows r = { .format = cb_opt_text(o, ARG_FORMAT),
                      .columns = columns,
                      .md_head = "| | ranks | context | token ms | messages ms | one process ms | "
                                 "efficiency |\n"
                                 "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
                      .md_line = md_line };
    struct engine e;
    int rc;

    if (!cb_opt_is(o, ARG_SPLIT, "context"))
        return cb_usage("--ranks: goes with --split context, under mpirun");
    rc = cb_engine_open_threads(o, n_threads, &e);
    if (!rc && cb_ranks_n(e.team) < 2)
        rc = cb_usage("--ranks: the job has one process: two are needed to time messages");
    if (!rc)
        rc = cb_engine_session(o, &e, "full", 17 * LEAST_DEPTH + WARM + TOKENS);
    if (!rc)
        rc = with_session(o, &e, &r);
    cb_engine_close(&e);
    return rc;
}
