/* SPDX-License-Identifier: MIT */
/* check_draft_windows.c - drafts on models whose layers keep a window of tokens, or read an earlier
 * layer's rows: tokens decoded together have the bits of single ones, and what is taken back leaves
 * no trace, neither in the logits nor in what the session holds. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "engine/session.h"
#include "engine/session_state.h"
#include "kit/drafted.h"
#include "kit/recipe.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { CONTEXT = 640, MOST = 6, TEXT = 150 };

/* Heads below 128 slots stay in order, whole blocks are prepacked: windows on both sides, and
 * prompts that end before and after the window is full */
static const struct {
    int window, n_prompt, shared;
} forms[] = { { 16, 40, 0 },   { 40, 10, 2 },   { 127, 100, 0 }, { 128, 120, 0 }, { 129, 200, 0 },
              { 200, 150, 3 }, { 256, 300, 0 }, { 256, 300, 2 }, { 0, 100, 2 },   { 0, 250, 3 } };
static const char *const types[] = { "f16", "f32", "bf16", "q8_0" };
enum { N_FORM = sizeof forms / sizeof *forms, FORMS = 4 * N_FORM };

static cb_model *model;

static cb_model *tiny_model(int i, uint64_t seed)
{
    struct tiny t = cb_tiny_small("mistral");

    t.n_layer = 5;
    t.hd = 32;
    t.window = forms[i].window;
    t.shared_kv = forms[i].shared;
    t.seed += seed;
    return cb_toy_model(&t, "cpu", 2);
}

static cb_session *after_prompt(const char *type, int n)
{
    const struct cb_session_params p = { .n_ctx = CONTEXT, .type_k = type, .type_v = type };
    int32_t ids[CONTEXT];
    cb_session *s;

    for (int i = 0; i < n; i++)
        ids[i] = cb_drafted_token(i * i);
    ck_assert_ok(cb_session_open(model, &p, &s));
    ck_assert_ok(cb_session_prefill(s, ids, n, NULL));
    return s;
}

START_TEST(all_at_once_as_one_by_one)
{
    const int i = _i / 4;

    model = tiny_model(i, 0);
    cb_drafted_at_once(after_prompt(types[_i % 4], forms[i].n_prompt),
                       after_prompt(types[_i % 4], forms[i].n_prompt), 200);
    cb_model_close(model);
}
END_TEST

/* All that the two remember is the same. */
static void same_state(const cb_session *a, const cb_session *b)
{
    const int n_count = cb_session_n_counts(a);
    int32_t *x = calloc((size_t)n_count, sizeof *x), *y = calloc((size_t)n_count, sizeof *y);
    struct area *p, *q;
    int n, m;

    ck_assert(x && y);
    ck_assert_int_eq(n_count, cb_session_n_counts(b));
    cb_session_counts(a, x);
    cb_session_counts(b, y);
    ck_assert_mem_eq(x, y, (size_t)n_count * sizeof *x);
    ck_assert_ok(cb_session_areas(a, &p, &n));
    ck_assert_ok(cb_session_areas(b, &q, &m));
    ck_assert_int_eq(n, m);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(p[i].kind, q[i].kind);
        ck_assert_uint_eq(p[i].bytes, q[i].bytes);
        ck_assert_msg(!memcmp(p[i].at, q[i].at, p[i].bytes), "area %d of kind %d, layer %d", i,
                      (int)p[i].kind, p[i].layer);
    }
    free(p);
    free(q);
    free(x);
    free(y);
}

/* All but the first `good` tokens of each draft are taken back. */
static void taken_back(cb_session *one, cb_session *all, int n_tok, int state)
{
    for (int at = 0, k = 0; at < n_tok; k++) {
        const int n = 1 + k % 13, good = 1 + k % 3 % n;
        const float *logits;
        int32_t tok[16];
        for (int i = 0; i < n; i++)
            tok[i] = cb_drafted_token(k * k + i);
        ck_assert_ok(cb_session_decode_all(all, tok, n, &logits));
        for (int i = 0; i < good; i++) {
            ck_assert_ok(cb_session_decode(one, tok[i]));
            cb_drafted_same_logits(one, logits + (size_t)i * (size_t)cb_n_vocab(model), "kept",
                                   at + i);
        }
        ck_assert_ok(cb_session_truncate(all, cb_session_len(one)));
        at += good;
    }
    ck_assert_ok(cb_session_decode(one, 7)); /* a cut leaves no logits */
    ck_assert_ok(cb_session_decode(all, 7));
    cb_drafted_same_logits(one, cb_session_logits(all), "after", n_tok);
    if (state)
        same_state(one, all);
    cb_session_close(one);
    cb_session_close(all);
}

/* A cut of the first prepacked block would round its rows: drafts do not cross it. */
START_TEST(taken_back_without_trace)
{
    const int i = _i / 4, n = forms[i].n_prompt + (forms[i].window ? 0 : 30);

    model = tiny_model(i, 0);
    taken_back(after_prompt(types[_i % 4], n), after_prompt(types[_i % 4], n), 250,
               forms[i].window > 0);
    cb_model_close(model);
}
END_TEST

/* ---- texts ---- */

static struct cb_speculation_counts same_text(cb_session *one, cb_session *s, cb_session *draft,
                                              float temp)
{
    struct drafted_text x = { MOST, TEXT, draft, cb_sampler_defaults() };

    x.pick.temp = temp;
    x.pick.seed = 9;
    return cb_drafted_text(one, s, &x);
}

static cb_session *draft_session(cb_model *m)
{
    const struct cb_session_params p = { .n_ctx = CONTEXT, .type_k = "f16", .type_v = "f16" };
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    return s;
}

/* The draft model has windows too: its guesses are taken back, and where a text begins again, it is
 * read again. */
START_TEST(windowed_draft_model)
{
    const int i = _i / 2, n = forms[i].n_prompt;
    const float temp = _i % 2 ? 0.8f : 0;
    cb_model *other = tiny_model(i, 70);
    cb_session *own, *draft = draft_session(other);
    struct cb_speculation_counts c;

    model = tiny_model(i, 0);
    own = draft_session(model);
    same_text(after_prompt("f16", n), after_prompt("f16", n), draft, temp);
    c = same_text(after_prompt("f16", n), after_prompt("f16", n), own, 0);
    ck_assert_int_ge(c.model_accepted, c.model_drafted - MOST);
    same_text(after_prompt("f16", n), after_prompt("f16", n), own, temp);
    cb_session_close(draft);
    cb_session_close(own);
    cb_model_close(other);
    cb_model_close(model);
}
END_TEST

/* ---- families ---- */

static const char *const recipes[] = { "gemma2",  "gemma3",    "gemma3n",      "gemma3nsecond",
                                       "gemma4",  "gemma4moe", "gemma4dense",  "cohere2",
                                       "exaone4", "gpt-oss",   "llama4chunks", "olmo3",
                                       "phi3",    "afmoe",     "starcoder2" };
enum { N_RECIPE = sizeof recipes / sizeof *recipes };

static void recipe_model(const char *name)
{
    const struct cb_model_params p = { .n_threads = 1 };
    struct gguf_make g;
    struct recipe r;
    char path[80];

    snprintf(path, sizeof path, "family-%s.json", name);
    cb_recipe_open(&r, path);
    snprintf(path, sizeof path, "check_draft_windows.%d.gguf", (int)getpid());
    cb_recipe_make(&r, &g);
    cb_make_save(&g, path);
    ck_assert_ok(cb_model_open(path, &p, &model));
    unlink(path);
    cb_recipe_close(&r);
}

START_TEST(families)
{
    recipe_model(recipes[_i]);
    cb_drafted_at_once(after_prompt("f32", 30), after_prompt("f32", 30), 60);
    if (strcmp(recipes[_i], "llama4chunks")) /* its drafts end where a chunk does */
        taken_back(after_prompt("f32", 30), after_prompt("f32", 30), 80, 0);
    same_text(after_prompt("f32", 30), after_prompt("f32", 30), NULL, 0.3f);
    cb_model_close(model);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("draft_windows");
    TCase *c = tcase_create("draft_windows");

    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, all_at_once_as_one_by_one, 0, FORMS);
    tcase_add_loop_test(c, taken_back_without_trace, 0, FORMS);
    tcase_add_loop_test(c, windowed_draft_model, 0, 2 * N_FORM);
    tcase_add_loop_test(c, families, 0, N_RECIPE);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
