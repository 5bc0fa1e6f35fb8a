/* SPDX-License-Identifier: MIT */
/* check_hybrids.c - policies and stored types on models of which only some layers have keys, or
 * have keys of their own: each runs as planned, or is refused with a reason; a budget that is never
 * reached gives what the full cache gives. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "engine/model_drafter.h"
#include "kit/drafted.h"
#include "kit/recipe.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/toy.h"

enum { N_CTX = 320, PROMPT = 230, MORE = 6 };

static const char *const recipes[] = { "qwen35",         "qwen3next", "lfm2",   "granitehybrid",
                                       "nemotron_h_moe", "falcon-h1", "mamba2", "kimi-linear",
                                       "gemma4",         "gemma4moe", "gemma3n" };
enum { N_RECIPE = sizeof recipes / sizeof *recipes };

static struct recipe recipe;
static char file[64];
static cb_model *m;
static int32_t ids[PROMPT + MORE];

static void ok(int status, const char *what)
{
    ck_assert_msg(!status, "%s: %s", what, cb_error());
}

static void open_recipe(int i)
{
    const struct cb_model_params p = { .n_threads = 1 };
    struct gguf_make g;
    char name[80];
    uint32_t x = 7;

    snprintf(name, sizeof name, "family-%s.json", recipes[i]);
    cb_recipe_open(&recipe, name);
    snprintf(file, sizeof file, "check_hybrids.%d.gguf", (int)getpid());
    cb_recipe_make(&recipe, &g);
    cb_make_save(&g, file);
    ok(cb_model_open(file, &p, &m), name);
    for (int j = 0; j < PROMPT + MORE; j++) {
        x = 1103515245u * x + 12345u;
        ids[j] = (int32_t)((x >> 8) % (uint32_t)recipe.n_vocab);
    }
}

static void close_recipe(void)
{
    cb_model_close(m);
    unlink(file);
    cb_recipe_close(&recipe);
}

/* NULL: it is refused, and says why */
static cb_session *open_with(const char *policy, const char *type)
{
    const struct cb_session_params p = {
        .n_ctx = N_CTX, .chunk = 64, .policy = policy, .type_k = type, .type_v = cb_toy_values(type)
    };
    cb_session *s;
    const int err = cb_session_open(m, &p, &s);

    if (!err)
        return s;
    ck_assert_msg(err == CB_EUNSUPPORTED || err == CB_EARG, "%s %s: %d", policy, type, err);
    ck_assert_msg(strlen(cb_error()) > 10, "%s %s: %s", policy, type, cb_error());
    return NULL;
}

static int near(uint64_t plan, uint64_t now)
{
    return fabs((double)plan - (double)now) <= 0.01 * (double)now + 64;
}

/* A prompt and some tokens -> the last logits; the memory is as planned. */
static void run_as_planned(cb_session *s, const char *what)
{
    struct cb_memory plan, now;
    float sum = 0;

    ok(cb_session_plan(s, PROMPT, MORE, &plan), what);
    ok(cb_session_prefill(s, ids, PROMPT, NULL), what);
    for (int i = 0; i < MORE; i++)
        ok(cb_session_decode(s, ids[PROMPT + i]), what);
    for (int i = 0; i < recipe.n_vocab; i++)
        sum += cb_session_logits(s)[i];
    ck_assert_msg(isfinite(sum), "%s", what);
    cb_session_memory(s, &now);
    ck_assert_msg(plan.state_bytes == now.state_bytes &&
                      plan.checkpoint_bytes == now.checkpoint_bytes,
                  "%s: states", what);
    if (plan.at_most)
        ck_assert_msg(now.kv_bytes <= plan.kv_bytes, "%s: bank", what);
    else
        ck_assert_msg(near(plan.kv_bytes, now.kv_bytes), "%s: bank of %llu bytes, planned %llu",
                      what, (unsigned long long)now.kv_bytes, (unsigned long long)plan.kv_bytes);
}

START_TEST(all_policies_and_types)
{
    char policy[160], what[256];
    int n_open = 0, n_f16 = 0;

    open_recipe(_i);
    for (int t = 0; t < cb_n_setting_type; t++)
        for (int i = 0; cb_setting_policy(i, policy, sizeof policy); i++) {
            const char *type = cb_setting_type[t];
            cb_session *s = open_with(policy, type);
            if (!s)
                continue;
            snprintf(what, sizeof what, "%s, %s, %s", recipes[_i], policy, type);
            run_as_planned(s, what);
            cb_session_close(s);
            n_open++;
            n_f16 += !strcmp(type, "f16");
        }
    ck_assert_int_gt(n_open, 0);
    /* where layers have keys of their own, most policies go with them */
    if (strcmp(recipes[_i], "mamba2") && strncmp(recipes[_i], "gemma", 5) &&
        strcmp(recipes[_i], "kimi-linear"))
        ck_assert_int_gt(n_f16, 8);
    close_recipe();
}
END_TEST

/* A budget that is never reached */
START_TEST(wide_budgets)
{
    char policy[160];
    cb_session *full;
    double size = 0;

    open_recipe(_i);
    full = open_with("full", "f32");
    ck_assert_ptr_nonnull(full);
    run_as_planned(full, "full");
    for (int j = 0; j < recipe.n_vocab; j++)
        size = fmax(size, fabs((double)cb_session_logits(full)[j]));
    for (int i = 0; i < cb_setting_n_policy(); i++) {
        cb_session *s;
        double most = 0;
        if (!cb_setting_wide(i, policy, sizeof policy) || !(s = open_with(policy, "f32")))
            continue;
        run_as_planned(s, policy);
        for (int j = 0; j < recipe.n_vocab; j++)
            most = fmax(most,
                        fabs((double)cb_session_logits(s)[j] - (double)cb_session_logits(full)[j]));
        ck_assert_msg(most < 2e-4 * size, "%s, %s: logits differ by %g of %g", recipes[_i], policy,
                      most, size);
        cb_session_close(s);
    }
    cb_session_close(full);
    close_recipe();
}
END_TEST

/* ---- as draft models ---- */

enum { DRAFT = 5 };

static cb_session *follower_of_text(void)
{
    cb_session *s = open_with("full", "f32");

    ck_assert_ptr_nonnull(s);
    return s;
}

/* A model guesses for itself, after each of many tokens that are not its guesses: states go back to
 * the place where the guesses began, so that its logits are those of the timeline. */
START_TEST(guesses_are_taken_back)
{
    cb_session *of, *s;
    struct model_drafter d;
    int32_t draft[DRAFT];
    int reads, further = 0;

    open_recipe(_i);
    of = follower_of_text();
    s = follower_of_text();
    if (cb_speculation_why_not(s)) /* layers share keys */
        ck_assert_ptr_nonnull(strstr(recipes[_i], "gemma"));
    else
        for (int n = 100; n < PROMPT; n++) {
            double off;
            d = (struct model_drafter){ s, recipe.n_vocab, 0 };
            if (n == 100)
                ck_assert_ok(cb_session_prefill(of, ids, n, NULL));
            ck_assert_int_ge(cb_model_drafter_guess(&d, ids, n, draft, 1, 1e9, &reads), 0);
            ck_assert_int_eq(reads, 0);
            ck_assert_int_eq(cb_session_len(s), n);
            off = cb_recipe_apart(&recipe, s, of);
            ck_assert_msg(off < 1e-3, "%s, %d tokens: %g", recipes[_i], n, off);
            cb_model_drafter_guess(&d, ids, n, draft, DRAFT, 1e9, &reads);
            further += cb_session_len(s) > n;
            ck_assert_ok(cb_session_decode(of, ids[n]));
        }
    /* the logits of these recipes are too small for a guess that is sure */
    ck_assert(further > 10 || !strcmp(recipes[_i], "granitehybrid") ||
              !strcmp(recipes[_i], "gemma3n"));
    cb_session_close(of);
    cb_session_close(s);
    close_recipe();
}
END_TEST

/* The text with drafts of the model itself is that without; none is rejected that is likeliest. */
START_TEST(drafts_of_the_model_itself)
{
    struct drafted_text x = { DRAFT, 80, NULL, cb_sampler_defaults() };
    struct cb_speculation_counts counts;
    cb_session *one, *s;

    open_recipe(_i / 2);
    one = follower_of_text();
    s = follower_of_text();
    x.draft = follower_of_text();
    x.pick.temp = _i % 2 ? 0.8f : 0;
    x.pick.seed = 5;
    if (cb_speculation_why_not(s)) {
        cb_session_close(one);
        cb_session_close(s);
    } else {
        ck_assert_ok(cb_session_prefill(one, ids, 100, NULL));
        ck_assert_ok(cb_session_prefill(s, ids, 100, NULL));
        counts = cb_drafted_text(one, s, &x);
        ck_assert(_i % 2 || counts.model_accepted >= counts.model_drafted - DRAFT);
    }
    cb_session_close(x.draft);
    close_recipe();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hybrids");
    TCase *tc = tcase_create("hybrids");

    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, all_policies_and_types, 0, N_RECIPE);
    tcase_add_loop_test(tc, wide_budgets, 0, N_RECIPE);
    tcase_add_loop_test(tc, guesses_are_taken_back, 0, N_RECIPE);
    tcase_add_loop_test(tc, drafts_of_the_model_itself, 0, 2 * N_RECIPE);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
