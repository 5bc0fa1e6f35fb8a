/* SPDX-License-Identifier: MIT */
/* check_expanded.c - long prompts of latent attention, which read keys and values of each head, are
 * what shorter ones that read the latents are; they do not depend on chunks and threads, their work
 * space is planned, and a policy that looks at the queries has the latents read. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/expanded_latents.h"
#include "kit/folder.h"
#include "kit/recipe.h"
#include "kit/suite.h"

enum { N_BEFORE = 150, N_PROMPT = 700, N_STEP = 6, N_CTX = 1024 };

/* Matrices of keys by rows and by columns, a projection of the queries, layers without rotation */
static const char *const recipes[] = { "family-deepseek3.json", "family-deepseek2.json",
                                       "family-deepseek2groups.json", "family-kimi-linear.json",
                                       "family-deepseek32.json" };
enum { N_RECIPE = sizeof recipes / sizeof *recipes };

static struct recipe recipe;
static cb_model *m;
static char path[4096], bank[4096];

static cb_model *open_with(int threads)
{
    const struct cb_model_params p = { .n_threads = threads, .device = "cpu" };
    cb_model *x;

    ck_assert_ok(cb_model_open(path, &p, &x));
    return x;
}

static void open_recipe(int i)
{
    const char *folder = cb_folder_make("expanded");
    struct gguf_make make;

    snprintf(path, sizeof path, "%s/model", folder);
    snprintf(bank, sizeof bank, "%s/bank", folder);
    cb_recipe_open(&recipe, recipes[i]);
    cb_recipe_make(&recipe, &make);
    cb_make_save(&make, path);
    m = open_with(2);
}

static void close_recipe(void)
{
    cb_model_close(m);
    cb_recipe_close(&recipe);
    cb_folder_remove();
}

static cb_session *session(cb_model *x, const char *type, const char *policy, int chunk)
{
    const struct cb_session_params p = { .n_ctx = N_CTX,
                                         .chunk = chunk,
                                         .type_k = type,
                                         .type_v = type,
                                         .policy = policy,
                                         .expand_latents = 1 };
    cb_session *s;

    ck_assert_ok(cb_session_open(x, &p, &s));
    return s;
}

struct look {
    const cb_session *s;
    int expanded; /* chunks that were */
};

static int look(void *arg, int64_t done, int64_t total)
{
    struct look *x = arg;

    (void)done, (void)total;
    x->expanded += cb_expanded_is_on(x->s);
    return 0;
}

/* Tokens from.. as a prompt; returns how many chunks of layers were expanded */
static int prompt(cb_session *s, int from, int n)
{
    struct look x = { s, 0 };
    const struct cb_prefill how = { .progress = look, .progress_arg = &x };
    int32_t ids[N_PROMPT];

    for (int i = 0; i < n; i++)
        ids[i] = cb_recipe_id(&recipe, from + i);
    ck_assert_ok(cb_session_prefill(s, ids, n, &how));
    ck_assert(!cb_expanded_is_on(s));
    return x.expanded;
}

static void same(const cb_session *a, const cb_session *b, const char *what)
{
    ck_assert_msg(
        !memcmp(cb_session_logits(a), cb_session_logits(b), (size_t)recipe.n_vocab * sizeof(float)),
        "%s: off by %g", what, cb_recipe_apart(&recipe, a, b));
}

/* Of one feed, and of feeds that are too short; at the beginning, and after other tokens */
START_TEST(as_latents)
{
    static const struct {
        const char *type;
        double off;
    } bank_of[] = { { "f32", 1e-4 }, { "f16", 1e-2 }, { "bf16", 3e-2 }, { "q8_0", 8e-2 } };

    open_recipe(_i);
    for (int t = 0; t < 4; t++)
        for (int before = 0; before <= N_BEFORE; before += N_BEFORE) {
            cb_session *a, *b;
            if (t == 3 && m->hp.hd % 32)
                continue;
            a = session(m, bank_of[t].type, "full", 0);
            b = session(m, bank_of[t].type, "full", 0);
            if (before) {
                ck_assert_int_eq(prompt(a, 0, before), 0);
                ck_assert_int_eq(prompt(b, 0, before), 0);
                same(a, b, "short prompts");
            }
            ck_assert_int_gt(prompt(a, before, N_PROMPT), 0);
            ck_assert_int_eq(prompt(b, before, 350), 0);
            ck_assert_int_eq(prompt(b, before + 350, N_PROMPT - 350), 0);
            for (int i = 0; i <= N_STEP; i++) {
                const double off = cb_recipe_apart(&recipe, a, b);
                ck_assert_msg(off < bank_of[t].off, "%s after %d, token %d: off by %g",
                              bank_of[t].type, before, i, off);
                cb_recipe_steps(&recipe, a, before + N_PROMPT + i, 1);
                cb_recipe_steps(&recipe, b, before + N_PROMPT + i, 1);
            }
            cb_session_close(a);
            cb_session_close(b);
        }
    close_recipe();
}
END_TEST

/* The same bits whatever the chunks and threads are; after a saved bank as well */
START_TEST(same_in_any_way)
{
    static const int chunk[] = { 7, 100, 1024 };
    cb_model *one;
    cb_session *s, *l;

    open_recipe(_i);
    one = open_with(1);
    s = session(m, "f16", "full", 0);
    prompt(s, 0, N_BEFORE);
    ck_assert_ok(cb_session_save(s, bank));
    prompt(s, N_BEFORE, N_PROMPT);
    for (int i = 0; i < 3; i++) {
        cb_session *x = session(i ? m : one, "f16", "full", chunk[i]);
        prompt(x, 0, N_BEFORE);
        ck_assert_int_gt(prompt(x, N_BEFORE, N_PROMPT), 0);
        same(s, x, "chunks");
        cb_session_close(x);
    }
    ck_assert_ok(cb_session_load(m, bank, N_CTX, &l));
    l->params.expand_latents = 1; /* a file does not say so */
    prompt(l, N_BEFORE, N_PROMPT);
    same(s, l, "after a saved bank");
    cb_session_close(l);
    cb_session_close(s);
    cb_model_close(one);
    close_recipe();
}
END_TEST

START_TEST(planned)
{
    struct cb_memory plan, small, now;
    cb_session *s;

    open_recipe(0);
    s = session(m, "f16", "full", 0);
    ck_assert_ok(cb_session_plan(s, N_PROMPT, 0, &plan));
    ck_assert_ok(cb_session_plan(s, 500, 0, &small)); /* too short */
    prompt(s, 0, N_PROMPT);
    cb_session_memory(s, &now);
    ck_assert_uint_eq(now.scratch_bytes, plan.scratch_bytes);
    ck_assert_uint_eq(now.kv_bytes, plan.kv_bytes);
    /* keys and values of 4 heads */
    ck_assert_uint_gt(plan.scratch_bytes - small.scratch_bytes,
                      2 * 4 * N_PROMPT * 2 * (uint64_t)cb_expanded_hd(&m->hp));
    cb_session_close(s);
    close_recipe();
}
END_TEST

/* Scores of a prompt's queries, rows that are dropped within it, and selectors want the latents. */
START_TEST(not_for)
{
    static const char *const policy[] = { "h2o:budget=400", "snapkv:budget=400",
                                          "streamingllm:recent=300", "own" };

    open_recipe(4);
    for (int i = 0; i < 4; i++) {
        cb_session *s;
        if (i < 3) { /* the model with a selector has no such policy */
            cb_model_close(m);
            cb_recipe_close(&recipe);
            cb_folder_remove();
            open_recipe(0);
        } else {
            close_recipe();
            open_recipe(4);
        }
        s = session(m, "f16", policy[i], 0);
        ck_assert_msg(prompt(s, 0, N_PROMPT) == 0, "%s", policy[i]);
        cb_session_close(s);
    }
    close_recipe();
}
END_TEST

/* A folder's prompts share beginnings, so they have the bits of a prompt from its first token. */
START_TEST(remembered)
{
    enum { SHORT = 640 };
    const struct cb_session_params p = {
        .n_ctx = N_CTX, .type_k = "f32", .type_v = "f32", .expand_latents = 1
    };
    int32_t ids[N_PROMPT];
    cb_session *whole, *whole_fork, *part, *other;
    cb_bank_dir *d;
    int hit;

    open_recipe(_i);
    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = cb_recipe_id(&recipe, i);
    ck_assert_ok(cb_bank_dir_open(bank, NULL, &d));
    other = session(m, "f32", NULL, 0);
    ck_assert_int_gt(prompt(other, 0, N_PROMPT), 0);
    ck_assert_ok(cb_bank_dir_put(d, other)); /* left out */
    ck_assert_ok(cb_bank_dir_find(d, m, &p, ids, N_PROMPT, &whole, &hit));
    ck_assert_int_eq(hit, 0);
    ck_assert_ok(cb_session_fork(whole, &whole_fork));
    prompt(whole, 0, N_PROMPT);
    prompt(whole_fork, 0, SHORT);
    ck_assert_ok(cb_bank_dir_put(d, whole_fork));
    ck_assert_ok(cb_bank_dir_find(d, m, &p, ids, N_PROMPT, &part, &hit));
    ck_assert_int_ge(hit, SHORT / 128 * 128);
    prompt(part, hit, N_PROMPT - hit);
    same(part, whole, "a prompt that continues a remembered one");
    cb_session_close(whole), cb_session_close(whole_fork);
    cb_session_close(part), cb_session_close(other);
    cb_bank_dir_close(d);
    close_recipe();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("expanded");
    TCase *t = tcase_create("expanded");

    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, as_latents, 0, N_RECIPE);
    tcase_add_loop_test(t, same_in_any_way, 0, N_RECIPE);
    tcase_add_loop_test(t, remembered, 0, 3);
    tcase_add_test(t, planned);
    tcase_add_test(t, not_for);
    suite_add_tcase(suite, t);
    return cb_suite_run(suite);
}
