/* SPDX-License-Identifier: MIT */
/* check_company.c - answers that are drafted, batched, forked and interleaved have the tokens that
 * a session alone makes. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kit/jobs.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_CTX = JOBS_CTX, DRAFT = 8 };

static cb_model *model;

static void setup(void)
{
    model = cb_jobs_model();
}

static void teardown(void)
{
    cb_model_close(model);
}

/* A prompt that repeats itself, so that drafts are found in it */
static const int32_t *refrain(void)
{
    static int32_t ids[N_CTX];

    for (int i = 0; i < N_CTX; i++)
        ids[i] = cb_toy_text(model)[i % 23];
    return ids;
}

/* ---- drafts ---- */

static const char *const draftable[] = { "full", "omnikv:filter=1,budget=24" };

/* Another answer joins one that is written alone, while some of a draft is neither accepted nor
 * taken back: how soon depends on how long the other's prompt is. */
START_TEST(company_ends_drafts)
{
    struct scheduler *s = cb_jobs_scheduler(model, 3, 64, 0, DRAFT);
    struct scheduler_stats stats;

    for (int i = 0; i < 16; i++) {
        struct job_order o = cb_jobs_order(refrain() + i, 40, 40);
        struct job_order late = cb_jobs_order(cb_toy_text(model) + i, 41 + 17 * i, 6);
        struct job_group *a, *b;
        struct gate gate;

        o.policy = draftable[_i / 2];
        o.sampler.temp = _i % 2 ? 0.6f : 0; /* drafts that are contradicted often, or seldom */
        o.no_cache = late.no_cache = 1;
        cb_gate_close(&gate, model);
        a = cb_jobs_put(s, &o, 1);
        b = cb_jobs_put(s, &late, 1);
        cb_gate_open(&gate);
        cb_jobs_finish(s, b, NULL);
        cb_jobs_finish(s, a, NULL);
        cb_jobs_expect_tokens(model, b, &late);
        cb_jobs_expect_tokens(model, a, &o);
        cb_scheduler_release(s, a);
        cb_scheduler_release(s, b);
    }
    cb_scheduler_stats(s, &stats);
    ck_assert_uint_gt(stats.drafted, 0);
    cb_jobs_close(s);
}
END_TEST

/* Answers with drafts that end and begin at different times, in as many slots, fewer, and one. Some
 * draft is then neither accepted nor taken back when another answer joins. */
START_TEST(drafts_in_turns)
{
    enum { N = 16 };
    struct scheduler *s = cb_jobs_scheduler(model, 1 + _i % 3, 64, 0, DRAFT);
    struct job_order o[N];
    struct job_group *g[N];

    for (int i = 0; i < N; i++) {
        o[i] = cb_jobs_order(refrain() + i % 7, 60 + 17 * (i * 5 % 12), 30 + 23 * (i * 7 % 5));
        o[i].policy = draftable[(i + _i / 3) % 2];
        o[i].sampler.temp = i % 3 ? 0.5f : 0;
        g[i] = cb_jobs_put(s, &o[i], i % 8 == 1 ? 2 : 1);
    }
    for (int i = 0; i < N; i++) {
        cb_jobs_finish(s, g[i], NULL);
        cb_jobs_expect_tokens(model, g[i], &o[i]);
        cb_scheduler_release(s, g[i]);
    }
    cb_jobs_close(s);
}
END_TEST

/* A drafted answer may fill the context to its last token, and is then as long as one without
 * drafts. */
START_TEST(drafts_at_the_end_of_the_context)
{
    for (int draft = 1; draft <= 16; draft++) {
        struct scheduler *s = cb_jobs_scheduler(model, 1, 64, 0, draft);
        struct job_order o = cb_jobs_order(refrain(), N_CTX - 40, -1);
        struct job_group *g;

        o.sampler.temp = 0;
        g = cb_jobs_put(s, &o, 1);
        cb_jobs_finish(s, g, NULL);
        cb_jobs_expect_end(&g->job[0], "length");
        ck_assert_int_eq(g->job[0].n_out, 41);
        cb_scheduler_release(s, g);
        cb_jobs_close(s);
    }
}
END_TEST

/* ---- kept sessions ---- */

/* A prompt that begins another one, which has just been read when this one is admitted: the logits
 * there are those of the other. */
START_TEST(a_prompt_that_begins_another)
{
    static const int n[] = { 200, 199, 150, 100 };
    struct scheduler *s = cb_jobs_scheduler(model, 4, 64, 0, 0);
    struct job_order o[4];
    struct job_group *g[4];
    struct gate gate;

    cb_gate_close(&gate, model);
    for (int i = 0; i < 4; i++) {
        o[i] = cb_jobs_order(cb_toy_text(model), n[i], 12);
        o[i].sampler.temp = 0;
        g[i] = cb_jobs_put(s, &o[i], 1);
    }
    cb_gate_open(&gate);
    for (int i = 0; i < 4; i++) {
        cb_jobs_finish(s, g[i], NULL);
        cb_jobs_expect_tokens(model, g[i], &o[i]);
        cb_scheduler_release(s, g[i]);
    }
    cb_jobs_close(s);
}
END_TEST

/* The tokens of j that have been told so far, after those in ids[n]: returns how many there are
 * now. Until nothing comes for a while. */
static int told(struct scheduler *s, struct job_group *g, int32_t *ids, int n, int *ended)
{
    while (!*ended && cb_scheduler_wait(s, g, 0.1, ended) >= 0)
        for (int i = 0; i < g->job[0].seen.n_token; i++)
            ids[n++] = g->job[0].seen.token[i].at.id;
    return n;
}

/* A prompt that is exactly what a session has, generated tokens among it: decoded tokens leave
 * logits that other prompts must not use, since a sampler may need others of them. */
START_TEST(a_prompt_that_ends_with_an_answer)
{
    struct scheduler *s = cb_jobs_scheduler(model, 2, 64, 0, 0);
    struct job_order o = cb_jobs_order(cb_toy_text(model), 100, 250);
    struct job_group *a, *b;
    struct gate gate;
    int32_t ids[N_CTX];
    int n = 100, ended = 0, rounds = 0;

    memcpy(ids, cb_toy_text(model), 100 * sizeof *ids);
    o.logprobs = 0;
    a = cb_jobs_put(s, &o, 1);
    while (!ended && rounds < 5) {
        cb_gate_close(&gate, model);
        n = told(s, a, ids, n, &ended); /* all that was sampled before the gate was closed */
        struct job_order same = cb_jobs_order(ids, n, 4);
        b = cb_jobs_put(s, &same, 1);
        cb_gate_open(&gate);
        cb_jobs_finish(s, b, NULL);
        ck_assert_int_le(b->job[0].n_cached, n > 100 ? n - 1 : n);
        cb_jobs_expect_end(&b->job[0], "length");
        cb_scheduler_release(s, b);
        rounds += n > 100;
    }
    ck_assert_int_gt(rounds, 0);
    if (!ended)
        cb_jobs_finish(s, a, NULL);
    cb_jobs_expect_tokens(model, a, &o);
    cb_scheduler_release(s, a);
    cb_jobs_close(s);
}
END_TEST

/* Copies of a session that go on by themselves, while it goes on too, are the session alone. */
START_TEST(copies_in_company)
{
    struct scheduler *s = cb_jobs_scheduler(model, 4, 64, 0, _i ? DRAFT : 0);
    struct job_order o[6];
    struct job_group *g[6];
    int32_t ids[6][N_CTX];

    for (int i = 0; i < 6; i++) {
        memcpy(ids[i], refrain(), sizeof ids[i]);
        ids[i][130 + i] = 5 + i;
        o[i] = cb_jobs_order(ids[i], 140 + 20 * i, 40);
        o[i].sampler.temp = i & 1 ? 0.7f : 0;
        o[i].keep = i == 0;
        g[i] = cb_jobs_put(s, &o[i], i == 3 ? 3 : 1);
    }
    for (int i = 0; i < 6; i++) {
        cb_jobs_finish(s, g[i], NULL);
        cb_jobs_expect_tokens(model, g[i], &o[i]);
        cb_scheduler_release(s, g[i]);
    }
    cb_jobs_close(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("company");
    TCase *t = tcase_create("answers");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, company_ends_drafts, 0, 4);
    tcase_add_loop_test(t, drafts_in_turns, 0, 6);
    tcase_add_test(t, drafts_at_the_end_of_the_context);
    tcase_add_test(t, a_prompt_that_begins_another);
    tcase_add_test(t, a_prompt_that_ends_with_an_answer);
    tcase_add_loop_test(t, copies_in_company, 0, 2);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
