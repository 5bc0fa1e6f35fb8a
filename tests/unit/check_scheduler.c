/* SPDX-License-Identifier: MIT */
/* check_scheduler.c - answers that share an engine: each has the tokens that a session alone makes,
 * whatever is computed beside it; cancelled, fair, within limits. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "kit/jobs.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_CTX = JOBS_CTX };

static cb_model *model;

static void setup(void)
{
    model = cb_jobs_model();
}

static void teardown(void)
{
    cb_model_close(model);
}

/* ---- texts ---- */

static const struct {
    const char *policy;
    int from, n, n_out;
    float temp;
} mix[] = {
    { "full", 0, 200, 24, 0 },
    { "snapkv:budget=24,window=8", 0, 180, 30, 0.8f },
    { "full", 10, 33, 40, 1.2f },
    { "h2o:budget=20", 5, 90, 12, 0.8f },
    { "streamingllm:budget=40", 0, 170, 20, 0 },
    { "full", 0, 1, 16, 0.7f },
    { "d2o:budget=30", 3, 120, 16, 0.9f },
    { "sieve:budget=12,recent=8", 0, 200, 16, 0.8f },
    { "omnikv:filter=1,budget=12", 1, 150, 18, 0.8f },
    { NULL, 20, 300, 10, 0.8f },
};
enum { N_MIX = sizeof mix / sizeof *mix };

START_TEST(same_tokens_as_alone)
{
    struct scheduler *s = cb_jobs_scheduler(model, _i, 64, 0, 0);
    const int32_t *text = cb_toy_text(model);
    struct job_order o[N_MIX];
    struct job_group *g[N_MIX];

    for (int i = 0; i < N_MIX; i++) {
        o[i] = cb_jobs_order(text + mix[i].from, mix[i].n, mix[i].n_out);
        o[i].policy = mix[i].policy;
        o[i].sampler.temp = mix[i].temp;
        g[i] = cb_jobs_put(s, &o[i], 1);
    }
    for (int i = 0; i < N_MIX; i++) {
        cb_jobs_finish(s, g[i], NULL);
        cb_jobs_expect_tokens(model, g[i], &o[i]);
        cb_scheduler_release(s, g[i]);
    }
    cb_jobs_close(s);
}
END_TEST

/* Penalties count the tokens of the prompt, too. */
START_TEST(penalties)
{
    struct scheduler *s = cb_jobs_scheduler(model, 2, 64, 0, 0);

    for (int i = 0; i < 6; i++) {
        struct job_order o = cb_jobs_order(cb_toy_text(model) + 11 * i, 120, 12);
        struct job_group *g;

        o.sampler.temp = 0;
        o.sampler.repeat_penalty = 1.5f;
        o.sampler.presence_penalty = 2;
        g = cb_jobs_put(s, &o, 1);
        cb_jobs_finish(s, g, NULL);
        cb_jobs_expect_tokens(model, g, &o);
        cb_scheduler_release(s, g);
    }
    cb_jobs_close(s);
}
END_TEST

/* Prompts that begin alike use kept sessions, cut or copied: the tokens stay the same. */
START_TEST(shared_prompts)
{
    static const int n[] = { 200, 150, 380, 200, 260, 90, 380 };
    struct scheduler *s = cb_jobs_scheduler(model, _i, 64, 0, 0);
    struct scheduler_stats stats;
    struct job_order o[7];
    struct job_group *g[7];
    int32_t ids[7][N_CTX];

    for (int i = 0; i < 7; i++) {
        memcpy(ids[i], cb_toy_text(model), sizeof ids[i]);
        ids[i][n[i] - 2] = 5 + i; /* they part before their ends */
        o[i] = cb_jobs_order(ids[i], n[i], 16);
        g[i] = cb_jobs_put(s, &o[i], i == 2 ? 2 : 1);
    }
    for (int i = 0; i < 7; i++) {
        cb_jobs_finish(s, g[i], NULL);
        cb_jobs_expect_tokens(model, g[i], &o[i]);
        cb_scheduler_release(s, g[i]);
    }
    cb_scheduler_stats(s, &stats);
    ck_assert_msg(stats.cached_tokens >= 500, "only %d tokens were found in kept sessions",
                  (int)stats.cached_tokens);
    cb_jobs_close(s);
}
END_TEST

/* The same prompt again computes one token; answers of one order share a prompt. */
START_TEST(kept_sessions)
{
    struct scheduler *s = cb_jobs_scheduler(model, 4, 64, 0, 0);
    struct job_order o = cb_jobs_order(cb_toy_text(model), 200, 8);
    struct job_group *g = cb_jobs_put(s, &o, 1);

    cb_jobs_finish(s, g, NULL);
    ck_assert_int_eq(g->job[0].n_cached, 0);
    cb_scheduler_release(s, g);
    g = cb_jobs_put(s, &o, 3);
    cb_jobs_finish(s, g, NULL);
    cb_jobs_expect_tokens(model, g, &o);
    for (int i = 0; i < 3; i++)
        ck_assert_msg(g->job[i].n_cached >= 199, "job %d %d", i, g->job[i].n_cached);
    cb_scheduler_release(s, g);
    o.no_cache = 1;
    g = cb_jobs_put(s, &o, 1);
    cb_jobs_finish(s, g, NULL);
    ck_assert_int_eq(g->job[0].n_cached, 0);
    cb_scheduler_release(s, g);
    cb_jobs_close(s);
}
END_TEST

/* A prompt that several answers share is read once, whatever the policy has dropped at its end: the
 * others are copied before the first one writes. */
START_TEST(answers_that_share_a_prompt)
{
    static const char *const policy[] = { "full", "h2o:budget=20", "snapkv:budget=24,window=8" };
    struct scheduler *s = cb_jobs_scheduler(model, 3, 64, 0, 0);
    struct job_order o = cb_jobs_order(cb_toy_text(model), 200, 8);
    struct job_group *g;
    int n_whole = 0;

    o.policy = policy[_i];
    g = cb_jobs_put(s, &o, 3);
    cb_jobs_finish(s, g, NULL);
    cb_jobs_expect_tokens(model, g, &o);
    for (int i = 0; i < 3; i++)
        n_whole += g->job[i].n_cached == 200;
    ck_assert_int_eq(n_whole, 2);
    cb_scheduler_release(s, g);
    cb_jobs_close(s);
}
END_TEST

/* Documents that were put up front are dropped after all else, however long ago they were read. */
START_TEST(documents_are_dropped_last)
{
    struct scheduler *s = cb_jobs_scheduler(model, 3, 64, 0, 0);
    struct job_group *g;

    for (int i = 0; i < 6; i++) {
        struct job_order o = cb_jobs_order(cb_toy_text(model) + i % 5, 150 + 10 * i, 4);
        o.keep = i == 0;
        g = cb_jobs_put(s, &o, 1);
        cb_jobs_finish(s, g, NULL);
        if (i == 5) /* all slots have had other prompts since */
            ck_assert_int_ge(g->job[0].n_cached, 150);
        cb_jobs_expect_tokens(model, g, &o);
        cb_scheduler_release(s, g);
    }
    cb_jobs_close(s);
}
END_TEST

/* A prompt that was read in another form, or for another policy, is not the same prompt. */
START_TEST(kept_sessions_of_other_settings)
{
    static const struct {
        const char *policy, *prefill;
    } list[] = { { "full", "dense" },
                 { "full", "omnikv" },
                 { "quest:budget=32", "dense" },
                 { "h2o:budget=20", "dense" } };
    struct scheduler *s = cb_jobs_scheduler(model, 4, 64, 0, 0);

    for (int i = 0; i < 8; i++) {
        struct job_order o = cb_jobs_order(cb_toy_text(model), 200, 8);
        struct job_group *g;

        o.policy = list[i % 4].policy;
        o.prefill = list[i % 4].prefill;
        g = cb_jobs_put(s, &o, 1);
        cb_jobs_finish(s, g, NULL);
        if (i < 4)
            ck_assert_int_eq(g->job[0].n_cached, 0);
        cb_jobs_expect_tokens(model, g, &o);
        cb_scheduler_release(s, g);
    }
    cb_jobs_close(s);
}
END_TEST

/* A policy that has dropped tokens cannot be cut: its session serves prompts that go on from it. */
START_TEST(kept_sessions_that_cannot_be_cut)
{
    struct scheduler *s = cb_jobs_scheduler(model, 2, 64, 0, 0);
    int32_t ids[N_CTX];
    struct job_order o = cb_jobs_order(ids, 200, 8);
    struct job_group *g;

    memcpy(ids, cb_toy_text(model), sizeof ids);
    o.policy = "snapkv:budget=24,window=8";
    g = cb_jobs_put(s, &o, 1);
    cb_jobs_finish(s, g, NULL);
    memcpy(ids + 200, g->job[0].out, 8 * sizeof *ids);
    cb_scheduler_release(s, g);
    o.n = 220;
    g = cb_jobs_put(s, &o, 1);
    cb_jobs_finish(s, g, NULL);
    cb_jobs_expect_end(&g->job[0], "length");
    ck_assert_int_eq(g->job[0].n_cached, 207); /* the last token was not fed */
    cb_scheduler_release(s, g);
    o.n = 100;
    g = cb_jobs_put(s, &o, 1);
    cb_jobs_finish(s, g, NULL);
    ck_assert_int_eq(g->job[0].n_cached, 0);
    cb_jobs_expect_tokens(model, g, &o);
    cb_scheduler_release(s, g);
    cb_jobs_close(s);
}
END_TEST

START_TEST(texts_and_ends)
{
    struct scheduler *s = cb_jobs_scheduler(model, 2, 64, 0, 0);
    struct job_order o = cb_jobs_order(cb_toy_text(model), 60, 20);
    struct buf all = { 0 }, cut = { 0 };
    struct job_group *g = cb_jobs_put(s, &o, 1);
    char stop[4] = { 0 };
    const char *const stops[] = { "", stop };

    cb_jobs_finish(s, g, &all);
    cb_scheduler_release(s, g);
    ck_assert_uint_gt(all.n, 8);
    memcpy(stop, all.s + all.n / 2, 3);
    o.stop = stops;
    o.n_stop = 2;
    g = cb_jobs_put(s, &o, 1);
    cb_jobs_finish(s, g, &cut);
    cb_jobs_expect_end(&g->job[0], "stop");
    ck_assert_int_eq(g->job[0].end.stop, 1);
    ck_assert_ptr_eq(memmem(cut.s, cut.n, stop, 3), NULL);
    ck_assert(!memcmp(all.s, cut.s, cut.n) && !memcmp(all.s + cut.n, stop, 3));
    cb_scheduler_release(s, g);
    o.max_tokens = 0;
    g = cb_jobs_put(s, &o, 1);
    cb_jobs_finish(s, g, NULL);
    cb_jobs_expect_end(&g->job[0], "length");
    ck_assert_int_eq(g->job[0].n_out, 0);
    cb_scheduler_release(s, g);
    o.max_tokens = -1; /* until the context is full */
    o.n_stop = 0;
    g = cb_jobs_put(s, &o, 1);
    cb_jobs_finish(s, g, NULL);
    cb_jobs_expect_end(&g->job[0], "length");
    ck_assert_int_eq(g->job[0].n_out, N_CTX - 60 + 1);
    cb_scheduler_release(s, g);
    cb_buf_free(&all);
    cb_buf_free(&cut);
    cb_jobs_close(s);
}
END_TEST

START_TEST(biases_and_logprobs)
{
    struct scheduler *s = cb_jobs_scheduler(model, 2, 64, 0, 0);
    struct job_order o = cb_jobs_order(cb_toy_text(model), 60, 6);
    const struct logit_bias bias[] = { { 65, 1000 }, { 66, 1000 }, { 65, -INFINITY } };
    struct job_group *g;
    double sum = 0;
    int ended, n = 0;

    o.bias = bias;
    o.n_bias = 3;
    o.logprobs = 20;
    g = cb_jobs_put(s, &o, 1);
    do {
        ck_assert_int_eq(cb_scheduler_wait(s, g, 60, &ended), 0);
        for (int i = 0; i < g->job[0].seen.n_token; i++, n++) {
            const struct job_token *t = &g->job[0].seen.token[i];
            ck_assert_int_eq(t->at.id, 66);
            ck_assert_int_eq(t->n_top, 20);
            ck_assert(t->at.logprob < 0 && t->top[0].logprob >= t->top[19].logprob);
            sum += exp((double)t->top[0].logprob);
        }
    } while (!ended);
    ck_assert_int_eq(n, 6);
    ck_assert(sum > 0 && sum <= 6);
    cb_scheduler_release(s, g);
    cb_jobs_close(s);
}
END_TEST

/* The order's logprobs are those of all logits of a session alone, but for how often rows were
 * rounded. Returns how many tokens a kept session had. */
static int expect_logprobs(cb_model *m, struct scheduler *s, const struct job_order *o)
{
    cb_session *alone = cb_toy_session(m, "full", "f16", 48);
    struct job_group *g = cb_jobs_put(s, o, 1);
    struct job_token want;
    int ended, n = 0, kept;

    ck_assert_ok(cb_session_prefill(alone, o->ids, o->n, NULL));
    do {
        ck_assert_int_eq(cb_scheduler_wait(s, g, 60, &ended), 0);
        for (int i = 0; i < g->job[0].seen.n_token; i++, n++) {
            const struct job_token *t = &g->job[0].seen.token[i];
            cb_logprobs(cb_session_logits(alone), cb_n_vocab(m), t->at.id, 5, &want);
            for (int k = 0; k < 5; k++)
                ck_assert_msg(fabsf(t->top[k].logprob - want.top[k].logprob) < 5e-4f,
                              "token %d, likely %d: %f, not %f", n, k, (double)t->top[k].logprob,
                              (double)want.top[k].logprob);
            ck_assert_ok(cb_session_decode(alone, t->at.id));
        }
    } while (!ended);
    ck_assert_int_ge(n, 8);
    kept = g->job[0].n_cached;
    cb_scheduler_release(s, g);
    cb_session_close(alone);
    return kept;
}

/* Where the head can be pruned, a greedy answer has few exact logits: one with logprobs has all,
 * and a prompt that is all that a greedy answer left begins with logits of its own. */
START_TEST(logprobs_of_exact_logits)
{
    enum { N = 60, OUT = 24 };
    const struct tiny tiny = cb_tiny_get("qwen2");
    cb_model *m = cb_toy_model(&tiny, "cpu", 2);
    struct scheduler *s = cb_jobs_scheduler(m, 1, 64, 0, 0);
    int32_t ids[N + OUT];
    struct job_order o = cb_jobs_order(ids, N, OUT);
    struct job_group *g;

    memcpy(ids, cb_toy_text(m), N * sizeof *ids);
    o.sampler.temp = 0;
    o.ignore_end = 0;
    g = cb_jobs_put(s, &o, 1);
    cb_jobs_finish(s, g, NULL);
    memcpy(ids + N, g->job[0].out, OUT * sizeof *ids);
    o.n += g->job[0].n_out - 1; /* the last token was not fed */
    cb_scheduler_release(s, g);
    o.logprobs = 5;
    ck_assert_int_eq(expect_logprobs(m, s, &o), o.n - 1);
    o.n = N;
    o.no_cache = 1;
    ck_assert_int_eq(expect_logprobs(m, s, &o), 0);
    cb_jobs_close(s);
    cb_model_close(m);
}
END_TEST

/* The probabilities of a small distribution by hand */
START_TEST(logprobs_by_hand)
{
    const float logits[] = { 0, 1, 2, -1 };
    const double all = log(exp(0) + exp(1) + exp(2) + exp(-1));
    struct job_token t;

    cb_logprobs(logits, 4, 3, 20, &t);
    ck_assert_int_eq(t.n_top, 4);
    ck_assert_int_eq(t.at.id, 3);
    ck_assert_double_eq_tol((double)t.at.logprob, -1 - all, 1e-6);
    for (int i = 0; i < 4; i++) {
        const int id[] = { 2, 1, 0, 3 };
        ck_assert_int_eq(t.top[i].id, id[i]);
        ck_assert_double_eq_tol((double)t.top[i].logprob, (double)logits[id[i]] - all, 1e-6);
    }
}
END_TEST

/* ---- turns ---- */

START_TEST(cancelled)
{
    struct scheduler *s = cb_jobs_scheduler(model, 2, 64, 0, 0);
    const struct job_order endless = cb_jobs_order(cb_toy_text(model), 100, -1);
    struct job_order o = cb_jobs_order(cb_toy_text(model) + 7, 50, 8);
    struct scheduler_stats stats;
    struct job_group *g;
    struct gate gate;
    int ended;

    o.policy = "h2o:budget=20"; /* goes on beside those that are cancelled */
    cb_gate_close(&gate, model);
    for (int i = 0; i < 6; i++)
        cb_scheduler_release(s, cb_jobs_put(s, &endless, 1));
    cb_gate_open(&gate);
    for (int i = 0; i < 6; i++)
        cb_scheduler_release(
            s, cb_jobs_put(s, &endless, 1)); /* at any state: waiting, reading, writing */
    g = cb_jobs_put(s, &endless, 1);
    ck_assert_int_eq(cb_scheduler_wait(s, g, 60, &ended), 0);
    cb_scheduler_release(s, g);
    g = cb_jobs_put(s, &o, 1);
    cb_jobs_finish(s, g, NULL);
    cb_jobs_expect_tokens(model, g, &o);
    cb_scheduler_release(s, g);
    cb_scheduler_stop(s, 60);
    cb_scheduler_stats(s, &stats);
    ck_assert_uint_eq(stats.ended[0] + stats.ended[1] + stats.ended[2], 14);
    ck_assert_uint_ge(stats.ended[2], 6);
    ck_assert_uint_eq(stats.ended[3], 0);
    ck_assert_int_eq(stats.waiting, 0);
    cb_scheduler_close(s);
}
END_TEST

/* One tenant has filled the queue: another's order comes next, not last. */
START_TEST(fair_to_tenants)
{
    struct scheduler *s = cb_jobs_scheduler(model, 1, 64, 0, 0);
    struct job_order o = cb_jobs_order(cb_toy_text(model), 150, 10);
    struct job_group *g[9];
    struct gate gate;
    int before = 0;

    cb_gate_close(&gate, model);
    for (int i = 0; i < 9; i++) {
        o.tenant = i == 8 ? 2 : 1;
        o.no_cache = 1;
        g[i] = cb_jobs_put(s, &o, 1);
    }
    cb_gate_open(&gate);
    for (int i = 0; i < 9; i++)
        cb_jobs_finish(s, g[i], NULL);
    for (int i = 0; i < 8; i++)
        before += g[i]->job[0].times.admitted < g[8]->job[0].times.admitted;
    ck_assert_int_le(before, 2); /* the one that was computed, and one of the same turn */
    for (int i = 1; i < 8; i++)  /* a tenant's own orders keep their order */
        ck_assert(g[i]->job[0].times.admitted > g[i - 1]->job[0].times.admitted);
    for (int i = 0; i < 9; i++)
        cb_scheduler_release(s, g[i]);
    cb_jobs_close(s);
}
END_TEST

/* A tenant that asked for nothing meanwhile has saved up no turns. */
START_TEST(turns_are_not_saved_up)
{
    struct scheduler *s = cb_jobs_scheduler(model, 1, 64, 0, 0);
    struct job_order o = cb_jobs_order(cb_toy_text(model), 100, 4);
    struct job_group *g[8];
    struct gate gate;

    o.no_cache = 1;
    for (int i = 0; i < 4; i++) {
        o.tenant = 1;
        g[i] = cb_jobs_put(s, &o, 1);
        cb_jobs_finish(s, g[i], NULL);
    }
    cb_gate_close(&gate, model);
    for (int i = 4; i < 8; i++) { /* three of the tenant that waited, and one of the other */
        o.tenant = i == 7 ? 1 : 2;
        g[i] = cb_jobs_put(s, &o, 1);
    }
    cb_gate_open(&gate);
    for (int i = 4; i < 8; i++)
        cb_jobs_finish(s, g[i], NULL);
    ck_assert(g[7]->job[0].times.admitted < g[6]->job[0].times.admitted);
    for (int i = 0; i < 8; i++)
        cb_scheduler_release(s, g[i]);
    cb_jobs_close(s);
}
END_TEST

/* Answers get tokens while a long prompt is read, and a short prompt passes a long one. */
START_TEST(prompts_between_tokens)
{
    struct scheduler *s = cb_jobs_scheduler(model, 3, 64, 0, 0);
    struct job_order o = cb_jobs_order(cb_toy_text(model), 30, 60),
                     lengthy = cb_jobs_order(cb_toy_text(model), 380, 4);
    struct job_order brief = cb_jobs_order(cb_toy_text(model) + 9, 20, 4);
    struct job_group *writer, *reader, *quick;
    struct gate gate;

    lengthy.no_cache = brief.no_cache = 1;
    cb_gate_close(&gate, model);
    writer = cb_jobs_put(s, &o, 1);
    reader = cb_jobs_put(s, &lengthy, 1);
    quick = cb_jobs_put(s, &brief, 1);
    cb_gate_open(&gate);
    cb_jobs_finish(s, reader, NULL);
    cb_jobs_finish(s, writer, NULL);
    cb_jobs_finish(s, quick, NULL);
    cb_jobs_expect_tokens(model, writer, &o);
    cb_jobs_expect_tokens(model, reader, &lengthy);
    cb_jobs_expect_tokens(model, quick, &brief);
    /* the long prompt takes 4 layers x 8 chunks, the others 4 steps each */
    ck_assert(writer->job[0].times.first < reader->job[0].times.read);
    ck_assert(quick->job[0].times.first < reader->job[0].times.read);
    cb_scheduler_release(s, writer);
    cb_scheduler_release(s, reader);
    cb_scheduler_release(s, quick);
    cb_jobs_close(s);
}
END_TEST

/* ---- limits ---- */

START_TEST(full_queue)
{
    struct scheduler *s = cb_jobs_scheduler(model, 1, 2, 0, 0);
    const struct job_order endless = cb_jobs_order(cb_toy_text(model), 100, -1);
    struct scheduler_stats stats;
    struct job_group *g[2], *more;
    struct gate gate;

    cb_gate_close(&gate, model);
    g[0] = cb_jobs_put(s, &endless, 1);
    g[1] = cb_jobs_put(s, &endless, 2);
    ck_assert_ok(cb_group_new(model, &endless, 1, &more));
    ck_assert_int_eq(cb_scheduler_order(s, more), ORDER_TOO_MANY);
    cb_gate_open(&gate);
    cb_scheduler_stats(s, &stats);
    ck_assert_uint_eq(stats.refused, 1);
    for (int i = 0; i < 2; i++)
        cb_scheduler_release(s, g[i]);
    cb_scheduler_stop(s, 60);
    ck_assert_int_eq(cb_scheduler_order(s, more), ORDER_STOPPING);
    cb_group_free(more);
    cb_scheduler_close(s);
}
END_TEST

START_TEST(bytes_of_banks)
{
    const int n = 200, n_out = 40;
    const uint64_t one =
        (uint64_t)(n + n_out) * 2 * 2 * 32 * 2 * 4; /* K and V, heads, f16, layers */
    struct scheduler *s = cb_jobs_scheduler(model, 4, 64, 2 * one, 0);
    struct job_order o = cb_jobs_order(cb_toy_text(model), n, n_out);
    struct scheduler_stats stats;
    struct job_group *g[5];

    for (int i = 0; i < 5; i++) {
        o.ids = cb_toy_text(model) + i;
        g[i] = cb_jobs_put(s, &o, 1);
    }
    for (int left = 5; left;) {
        int ended;
        cb_scheduler_stats(s, &stats);
        ck_assert_uint_le(stats.bank_bytes, 2 * one + one / 8);
        ck_assert_int_le(stats.reading + stats.writing, 2);
        for (int i = 0; i < 5; i++)
            if (cb_scheduler_wait(s, g[i], 0.001, &ended) >= 0)
                left -= ended;
    }
    for (int i = 0; i < 5; i++) {
        o.ids = cb_toy_text(model) + i;
        cb_jobs_expect_tokens(model, g[i], &o);
        cb_scheduler_release(s, g[i]);
    }
    cb_jobs_close(s);
    s = cb_jobs_scheduler(model, 4, 64, one / 2, 0);
    g[0] = cb_jobs_put(s, &o, 1);
    cb_jobs_finish(s, g[0], NULL);
    cb_jobs_expect_end(&g[0]->job[0], "error");
    ck_assert_int_eq(g[0]->job[0].end.status, CB_EFULL);
    ck_assert_ptr_ne(strstr(g[0]->job[0].end.error, "limit"), NULL);
    cb_scheduler_release(s, g[0]);
    cb_jobs_close(s);
}
END_TEST

START_TEST(wrong_orders)
{
    struct scheduler *s = cb_jobs_scheduler(model, 2, 64, 0, 0);
    struct job_order o = cb_jobs_order(cb_toy_text(model), 50, 8);
    const struct logit_bias far = { 1 << 30, 1 };
    struct job_group *g;

    o.policy = "no-such-policy";
    g = cb_jobs_put(s, &o, 2);
    cb_jobs_finish(s, g, NULL);
    for (int i = 0; i < 2; i++) {
        cb_jobs_expect_end(&g->job[i], "error");
        ck_assert_int_eq(g->job[i].end.status, CB_EARG);
        ck_assert_ptr_ne(strstr(g->job[i].end.error, "no-such-policy"), NULL);
    }
    ck_assert_ptr_ne(cb_scheduler_failure(s, g), NULL);
    cb_scheduler_release(s, g);
    o.policy = NULL;
    o.bias = &far;
    o.n_bias = 1;
    ck_assert_int_eq(cb_group_new(model, &o, 1, &g), CB_EARG);
    ck_assert_ptr_eq(g, NULL);
    o.n_bias = 0;
    o.sampler.repeat_penalty = 0;
    ck_assert_int_eq(cb_group_new(model, &o, 1, &g), CB_EARG);
    cb_jobs_close(s);
}
END_TEST

/* A stop without grace cancels what is left; with grace, answers end. */
START_TEST(stops)
{
    enum { N = 60 };
    struct job_order o = cb_jobs_order(cb_toy_text(model), 100, _i ? 20 : -1);
    struct scheduler *s = cb_jobs_scheduler(model, 1, N, 0, 0);
    struct job_group *g[N];
    const int n = _i ? 2 : N; /* without grace, more than can end meanwhile */

    o.no_cache = 1;
    for (int i = 0; i < n; i++)
        g[i] = cb_jobs_put(s, &o, 1);
    cb_scheduler_stop(s, _i ? 60 : 0);
    for (int i = 0; i < n; i++)
        cb_jobs_finish(s, g[i], NULL);
    cb_jobs_expect_end(&g[n - 1]->job[0], _i ? "length" : "cancelled");
    for (int i = 0; i < n; i++)
        cb_scheduler_release(s, g[i]);
    cb_scheduler_close(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("scheduler");
    TCase *t = tcase_create("jobs");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, same_tokens_as_alone, 1, 5);
    tcase_add_test(t, penalties);
    tcase_add_loop_test(t, shared_prompts, 1, 4);
    tcase_add_loop_test(t, answers_that_share_a_prompt, 0, 3);
    tcase_add_test(t, documents_are_dropped_last);
    tcase_add_test(t, kept_sessions_of_other_settings);
    tcase_add_test(t, kept_sessions);
    tcase_add_test(t, kept_sessions_that_cannot_be_cut);
    tcase_add_test(t, texts_and_ends);
    tcase_add_test(t, biases_and_logprobs);
    tcase_add_test(t, logprobs_of_exact_logits);
    tcase_add_test(t, logprobs_by_hand);
    tcase_add_test(t, cancelled);
    tcase_add_test(t, fair_to_tenants);
    tcase_add_test(t, turns_are_not_saved_up);
    tcase_add_test(t, prompts_between_tokens);
    tcase_add_test(t, full_queue);
    tcase_add_test(t, bytes_of_banks);
    tcase_add_test(t, wrong_orders);
    tcase_add_loop_test(t, stops, 0, 2);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
