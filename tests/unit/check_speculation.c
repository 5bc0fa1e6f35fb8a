/* SPDX-License-Identifier: MIT */
/* check_speculation.c - drafts change the time that a text takes, never the text: several tokens at
 * once give the bits of one at a time, and what is taken back leaves no trace. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ctxbank.h"
#include "engine/drafter.h"
#include "engine/session.h"
#include "kit/drafted.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { PROMPT = 200, CONTEXT = 600 };

static cb_model *model;

static void setup(void)
{
    struct tiny t = cb_tiny_small("qwen2");

    t.hd = 32;
    model = cb_toy_model(&t, "cpu", 2);
}

static void teardown(void)
{
    cb_model_close(model);
}

static const char *const policies[] = { "full", "sieve:budget=64,recent=16,sink=4",
                                        "quest:budget=64,page=16,dense=0",
                                        "infinigen:alpha=0.3,most=0.6,dense=1",
                                        "omnikv:filter=1,budget=32,tail_max=24,window=5" };
static const char *const types[] = { "f16", "f32", "bf16", "q8_0" };
enum { N_POLICY = 5, FORMS = N_POLICY * 4 };

static cb_session *after_prompt(const char *policy, const char *type)
{
    struct cb_session_params p = cb_session_defaults();
    int32_t ids[PROMPT];
    cb_session *s;

    p.n_ctx = CONTEXT;
    p.policy = policy;
    p.type_k = p.type_v = type;
    for (int i = 0; i < PROMPT; i++)
        ids[i] = cb_drafted_token(i);
    ck_assert_ok(cb_session_open(model, &p, &s));
    ck_assert_ok(cb_session_prefill(s, ids, PROMPT, NULL));
    return s;
}

static cb_session *form(int i)
{
    return after_prompt(policies[i % N_POLICY], types[i / N_POLICY]);
}

/* Across blocks of 128 slots and splits of 512 */
START_TEST(all_at_once_as_one_by_one)
{
    cb_drafted_at_once(form(_i), form(_i), 350);
}
END_TEST

/* Drafts that are always wrong: each is taken back. */
START_TEST(taken_back_without_trace)
{
    cb_session *one = form(_i), *all = form(_i);

    for (int at = 0; at < 350; at++) {
        const int n = 1 + at % 13;
        const float *logits;
        int32_t tok[16];
        for (int i = 0; i < n; i++)
            tok[i] = cb_drafted_token(at * at + i);
        ck_assert_ok(cb_session_decode_all(all, tok, n, &logits));
        ck_assert_int_eq(cb_session_decode(one, tok[0]), CB_OK);
        cb_drafted_same_logits(one, logits, "first", at);
        ck_assert_int_eq(cb_session_truncate(all, cb_session_len(one)), CB_OK);
    }
    cb_session_close(one);
    cb_session_close(all);
}
END_TEST

enum { MOST = 6, TEXT = 250 };

/* The text of s with drafts, which `draft` guesses too unless it is NULL, is that of `one` without.
 * Closes `one` and s. */
static struct cb_speculation_counts same_text(cb_session *one, cb_session *s, cb_session *draft,
                                              float temp)
{
    struct drafted_text x = { MOST, TEXT, draft, cb_sampler_defaults() };

    x.pick.temp = temp;
    x.pick.seed = 9;
    x.pick.repeat_penalty = temp > 0 ? 1.2f : 1;
    return cb_drafted_text(one, s, &x);
}

/* Greedy text of a random model repeats itself soon, so drafts are accepted. Choices at a high
 * temperature contradict nearly all drafts. */
START_TEST(the_text_without_drafts)
{
    const float temp = _i % 3 == 0 ? 0 : _i % 3 == 1 ? 0.3f : 3;
    const struct cb_speculation_counts c = same_text(form(_i / 3), form(_i / 3), NULL, temp);

    if (temp == 0)
        ck_assert_int_gt(c.accepted, 0);
    ck_assert_int_eq(c.model_drafted, 0);
}
END_TEST

/* A layer that chooses for others keeps a list of slots for each token of a draft. Guessed queries
 * are counted from the start, for the longest draft. */
START_TEST(work_space_is_planned)
{
    enum { GEN = 10, DRAFT = 16 };
    cb_session *s = after_prompt(policies[_i], "f16");
    const size_t more = !strncmp(policies[_i], "omnikv", 6) ? PROMPT + GEN : 0;
    struct cb_memory before, with;
    cb_speculation *x;

    ck_assert_int_eq(cb_session_plan(s, PROMPT, GEN, &before), CB_OK);
    ck_assert_int_eq(cb_speculation_new(s, DRAFT, &x), CB_OK);
    ck_assert_int_eq(cb_session_plan(s, PROMPT, GEN, &with), CB_OK);
    ck_assert_uint_eq(with.scratch_bytes - before.scratch_bytes,
                      DRAFT * more * sizeof(float) +
                          (DRAFT + 1) * (size_t)cb_n_vocab(model) * sizeof(float));
    cb_speculation_free(x);
    cb_session_close(s);
}
END_TEST

/* ---- draft models ---- */

static cb_session *draft_session(cb_model *m, int n_ctx)
{
    const struct cb_session_params p = { .n_ctx = n_ctx, .type_k = "f16", .type_v = "f16" };
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    return s;
}

static cb_model *other_model(const char *family, uint64_t seed, int n_vocab)
{
    struct tiny t = cb_tiny_small(family);

    t.hd = 32;
    t.seed = seed ? seed : t.seed;
    t.n_vocab = n_vocab;
    return cb_toy_model(&t, "cpu", 1);
}

/* A model that drafts for itself is right each time; the last draft may be unfinished. */
START_TEST(its_own_draft_model)
{
    cb_session *draft = draft_session(model, CONTEXT);
    const struct cb_speculation_counts c =
        same_text(after_prompt("full", "f16"), after_prompt("full", "f16"), draft, 0);

    ck_assert_int_gt(c.model_drafted, 0);
    ck_assert_int_ge(c.model_accepted, c.model_drafted - MOST);
    cb_session_close(draft);
}
END_TEST

/* With another model's drafts, of all forms, sampled and greedy; the session of the draft model
 * holds the whole timeline, or the end of it, and serves both texts. */
START_TEST(another_draft_model)
{
    const float temp = _i % 2 ? 0.7f : 0;
    cb_model *m = other_model("qwen2", 77, 0);
    cb_session *draft = draft_session(m, _i % 3 ? CONTEXT : 64);
    const struct cb_speculation_counts c = same_text(form(_i / 2), form(_i / 2), draft, temp);

    same_text(form(0), form(0), draft, 0);
    if (c.model_drafted >= MOST) /* one alone may be right by chance */
        ck_assert_int_le(2 * c.model_accepted, c.model_drafted);
    cb_session_close(draft);
    cb_model_close(m);
}
END_TEST

/* A token that the draft model does not have ends its drafts, not the text. */
START_TEST(tokens_that_the_draft_model_lacks)
{
    const int n_vocab = cb_n_vocab(model);
    cb_model *wide = other_model("qwen2", 0, n_vocab + 8);
    cb_session *draft = draft_session(model, CONTEXT), *s = draft_session(wide, CONTEXT);
    struct cb_speculation_counts counts;
    cb_speculation *x;

    ck_assert_int_eq(cb_speculation_new(s, MOST, &x), CB_OK);
    ck_assert_ok(cb_speculation_set_draft(x, draft));
    for (int i = 0; i < 40; i++)
        ck_assert_ok(cb_speculation_decode(x, i == 20 ? n_vocab + 3 : cb_drafted_token(i)));
    cb_speculation_get_counts(x, &counts);
    ck_assert_int_le(cb_session_len(draft), 20 + MOST);
    cb_speculation_free(x);
    cb_session_close(s);
    cb_session_close(draft);
    cb_model_close(wide);
}
END_TEST

START_TEST(draft_models_refused)
{
    const struct cb_session_params p = { .n_ctx = CONTEXT, .policy = "streamingllm:recent=32" };
    cb_session *s = after_prompt("full", "f16"), *draft;
    cb_model *m = other_model("llama", 0, 0);
    cb_speculation *x;

    ck_assert_int_eq(cb_speculation_new(s, MOST, &x), CB_OK);
    ck_assert_int_eq(cb_speculation_set_draft(x, s), CB_EARG);
    draft = draft_session(m, CONTEXT);
    ck_assert_int_eq(cb_speculation_set_draft(x, draft), CB_EARG);
    ck_assert_msg(!strncmp(cb_error(), "vocabularies differ: ", 21), "%s", cb_error());
    cb_session_close(draft);
    ck_assert_int_eq(cb_session_open(model, &p, &draft), CB_OK);
    ck_assert_int_eq(cb_speculation_set_draft(x, draft), CB_EUNSUPPORTED);
    cb_session_close(draft);
    cb_speculation_free(x);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* Drafts never go beyond the context. */
START_TEST(up_to_the_last_slot)
{
    cb_session *s = form(_i);
    cb_speculation *x;

    ck_assert_int_eq(cb_speculation_new(s, 16, &x), CB_OK);
    while (cb_speculation_len(x) < CONTEXT)
        ck_assert_ok(cb_speculation_decode(x, cb_drafted_token(cb_speculation_len(x) % 20)));
    ck_assert_int_eq(cb_speculation_decode(x, 5), CB_EFULL);
    cb_speculation_free(x);
    cb_session_close(s);
}
END_TEST

START_TEST(refusals)
{
    static const char *const refused[] = { "omnikv:filter=1,budget=32,select=exp", "h2o:budget=64",
                                           "streamingllm:recent=32", "snapkv:budget=128" };
    cb_session *s = after_prompt("full", "f16");
    const int32_t two[] = { 4, -1 };
    const float *logits;
    cb_speculation *x;

    ck_assert_int_eq(cb_speculation_new(s, 17, &x), CB_EARG);
    ck_assert_ptr_null(x);
    ck_assert_int_eq(cb_session_decode_all(s, two, 2, &logits), CB_EARG);
    ck_assert_int_eq(cb_session_len(s), PROMPT);
    cb_session_close(s);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        s = after_prompt(refused[i], "f16");
        ck_assert_ptr_nonnull(cb_speculation_why_not(s));
        ck_assert_int_eq(cb_speculation_new(s, 4, &x), CB_EUNSUPPORTED);
        ck_assert_int_eq(cb_session_decode_all(s, (const int32_t[]){ 4, 5 }, 2, &logits),
                         CB_EUNSUPPORTED);
        ck_assert_int_eq(cb_session_decode_all(s, two, 1, &logits), CB_OK); /* one is no draft */
        cb_session_close(s);
    }
    s = after_prompt("full", "kivi4");
    ck_assert_str_eq(cb_speculation_why_not(s), "quantised tokens cannot be taken back");
    cb_session_close(s);
}
END_TEST

/* ---- the drafter ---- */

START_TEST(longest_match_wins)
{
    /* 1 2 3 occurs three times; the second time after 9 8, as at the end */
    static const int32_t t[] = { 5,  1, 2, 3, 40, 9,  8, 1, 2, 3, 41,
                                 42, 6, 1, 2, 3,  43, 9, 8, 1, 2, 3 };
    const int n = sizeof t / sizeof *t;
    struct drafter *d;
    int32_t draft[8];

    ck_assert_int_eq(cb_drafter_new(&d), CB_OK);
    ck_assert_int_eq(cb_drafter_guess(d, t, 3, draft, 4), 0); /* too short */
    ck_assert_int_eq(cb_drafter_guess(d, t, n, draft, 3), 3);
    ck_assert_int_eq(draft[0], 41);
    ck_assert_int_eq(draft[1], 42);
    ck_assert_int_eq(draft[2], 6);
    ck_assert_int_eq(cb_drafter_guess(d, t, 10, draft, 1), 1); /* cut: only the first one is left */
    ck_assert_int_eq(draft[0], 40);
    ck_assert_int_eq(cb_drafter_guess(d, t, 12, draft, 4), 0); /* nothing ends in 3 41 42 */
    cb_drafter_free(d);
}
END_TEST

START_TEST(a_period_goes_on)
{
    static const int32_t t[] = { 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3 };
    struct drafter *d;
    int32_t draft[8];

    ck_assert_int_eq(cb_drafter_new(&d), CB_OK);
    ck_assert_int_eq(cb_drafter_guess(d, t, 11, draft, 8), 8);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(draft[i], (i + 3) % 4 + 1);
    cb_drafter_free(d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("speculation");
    TCase *c = tcase_create("speculation");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, all_at_once_as_one_by_one, 0, FORMS);
    tcase_add_loop_test(c, taken_back_without_trace, 0, FORMS);
    tcase_add_loop_test(c, the_text_without_drafts, 0, 3 * FORMS);
    tcase_add_loop_test(c, work_space_is_planned, 0, N_POLICY);
    tcase_add_test(c, its_own_draft_model);
    tcase_add_loop_test(c, another_draft_model, 0, 2 * FORMS);
    tcase_add_test(c, tokens_that_the_draft_model_lacks);
    tcase_add_test(c, draft_models_refused);
    tcase_add_loop_test(c, up_to_the_last_slot, 0, 2);
    tcase_add_test(c, refusals);
    tcase_add_test(c, longest_match_wins);
    tcase_add_test(c, a_period_goes_on);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
