/* SPDX-License-Identifier: MIT */
/* check_parting.c - models whose layers remember without keys: where questions on one text part, no
 * token of the text is computed again, in a server and after its restart; and the answers are those
 * of a session alone. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kit/folder.h"
#include "kit/jobs.h"
#include "kit/recipe.h"
#include "kit/suite.h"

/* The text ends where no checkpoint can stand. */
enum { TEXT = 1491, QUESTION = 40, N_CTX = 2048, OUT = 6, N_QUESTION = 3 };

static const char *const recipes[] = { "qwen35", "lfm2", "granitehybrid" };
enum { N_RECIPE = sizeof recipes / sizeof *recipes };

static struct recipe recipe;
static char file[64];
static cb_model *model;
static int32_t prompt[N_QUESTION][TEXT + QUESTION];

static void open_recipe(int i)
{
    const struct cb_model_params p = { .n_threads = 2 };
    struct gguf_make g;
    char name[80];

    snprintf(name, sizeof name, "family-%s.json", recipes[i]);
    cb_recipe_open(&recipe, name);
    snprintf(file, sizeof file, "check_parting.%d.gguf", (int)getpid());
    cb_recipe_make(&recipe, &g);
    cb_make_save(&g, file);
    ck_assert_ok(cb_model_open(file, &p, &model));
    for (int q = 0; q < N_QUESTION; q++)
        for (int k = 0; k < TEXT + QUESTION; k++)
            prompt[q][k] = cb_recipe_id(&recipe, k < TEXT ? k : k + 7 * q + 1);
}

static void close_recipe(void)
{
    cb_model_close(model);
    unlink(file);
    cb_recipe_close(&recipe);
}

static struct scheduler *server(cb_bank_dir *d)
{
    const struct scheduler_params p = {
        .slots = { .model = model, .session = { .n_ctx = N_CTX, .chunk = 128 }, .n = 4, .dir = d },
        .most_waiting = 8,
        .n_tenant = 1,
        .decode_latency_s = 0.001
    };
    struct scheduler *s;

    ck_assert_ok(cb_scheduler_open(&p, &s));
    return s;
}

/* What a session alone makes of prompt q */
static void expect_alone(const struct job *j, int q)
{
    const struct cb_session_params p = { .n_ctx = N_CTX, .chunk = 128 };
    cb_session *s;

    ck_assert_ok(cb_session_open(model, &p, &s));
    ck_assert_ok(cb_session_prefill(s, prompt[q], TEXT + QUESTION, NULL));
    for (int i = 0; i < OUT; i++) {
        const float *x = cb_session_logits(s);
        int best = 0;
        for (int t = 1; t < recipe.n_vocab; t++)
            best = x[t] > x[best] ? t : best;
        ck_assert_int_eq(j->out[i], best);
        ck_assert_ok(cb_session_decode(s, best));
    }
    cb_session_close(s);
}

/* Asks question q; returns how many tokens of the prompt were there already. */
static int ask(struct scheduler *s, int q, int parting)
{
    struct job_order o = cb_jobs_order(prompt[q], TEXT + QUESTION, OUT);
    struct job_group *g;
    int cached;

    o.parting = parting;
    o.sampler.temp = 0;
    g = cb_jobs_put(s, &o, 1);
    cb_jobs_finish(s, g, NULL);
    cb_jobs_expect_end(&g->job[0], "length");
    expect_alone(&g->job[0], q);
    cached = g->job[0].n_cached;
    cb_scheduler_release(s, g);
    return cached;
}

/* A copy at the parting serves the next question: its state is there, and nothing is fed again. */
START_TEST(in_a_server)
{
    struct scheduler_stats stats;
    struct scheduler *s;

    open_recipe(_i);
    s = server(NULL);
    ck_assert_int_eq(ask(s, 0, TEXT), 0);
    ck_assert_int_eq(ask(s, 1, TEXT), TEXT);
    ck_assert_int_eq(ask(s, 2, TEXT), TEXT);
    ck_assert_int_eq(ask(s, 2, TEXT), TEXT); /* a session would go back further */
    cb_scheduler_stats(s, &stats);
    ck_assert_uint_eq(stats.prompt_tokens, TEXT + 4 * QUESTION);
    cb_jobs_close(s);
    close_recipe();
}
END_TEST

/* The folder has the state at the parting itself. */
START_TEST(after_a_restart)
{
    struct scheduler_stats stats;
    struct scheduler *s;
    cb_bank_dir *d;

    open_recipe(_i);
    ck_assert_ok(cb_bank_dir_open(cb_folder_make("check_parting"), NULL, &d));
    s = server(d);
    ck_assert_int_eq(ask(s, 0, TEXT), 0);
    cb_jobs_close(s);
    for (int q = 1; q < N_QUESTION; q++) {
        s = server(d);
        ck_assert_int_eq(ask(s, q, TEXT), TEXT);
        cb_scheduler_stats(s, &stats);
        ck_assert_uint_eq(stats.prompt_tokens, QUESTION);
        ck_assert_uint_eq(stats.hit_tokens, TEXT);
        cb_jobs_close(s);
    }
    s = server(d);
    ck_assert_int_eq(ask(s, 0, TEXT), TEXT + QUESTION); /* the end is there as well */
    cb_jobs_close(s);
    cb_bank_dir_close(d);
    cb_folder_remove();
    close_recipe();
}
END_TEST

/* A prompt without a known parting is remembered at its end, and at checkpoints. */
START_TEST(without_a_parting)
{
    struct scheduler *s;
    cb_bank_dir *d;

    open_recipe(_i);
    ck_assert_ok(cb_bank_dir_open(cb_folder_make("check_parting"), NULL, &d));
    s = server(d);
    ck_assert_int_eq(ask(s, 0, 0), 0);
    cb_jobs_close(s);
    s = server(d);
    ck_assert_int_eq(ask(s, 0, 0), TEXT + QUESTION);
    ck_assert_int_eq(ask(s, 1, 0), TEXT);
    cb_jobs_close(s);
    cb_bank_dir_close(d);
    cb_folder_remove();
    close_recipe();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("parting");
    TCase *tc = tcase_create("parting");

    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, in_a_server, 0, N_RECIPE);
    tcase_add_loop_test(tc, after_a_restart, 0, N_RECIPE);
    tcase_add_loop_test(tc, without_a_parting, 0, N_RECIPE);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
