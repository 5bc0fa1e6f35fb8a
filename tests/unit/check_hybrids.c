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

int main(void)
{
    Suite *s = suite_create("hybrids");
    TCase *tc = tcase_create("hybrids");

    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, all_policies_and_types, 0, N_RECIPE);
    tcase_add_loop_test(tc, wide_budgets, 0, N_RECIPE);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
