/* SPDX-License-Identifier: MIT */
/* check_kivi_sessions.c - sessions with quantised keys and values: every policy beside f16, what is
 * never quantised, the memory that was planned, and types that are refused. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/guard.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { PROMPT = 150, STEPS = 70 };

static const char *const policies[] = {
    "full",
    "omnikv:filter=1+3,budget=20",
    "omnikv:filter=1,budget=20,select=exp,window=5",
    "window:budget=64",
    "streamingllm:budget=64",
    "h2o:budget=64",
    "h2o:budget=64,positions=rolled",
    "snapkv:budget=64,window=8,group=each",
    "snapkv:budget=64,window=8",
    "pyramidkv:budget=64,window=8",
    "simlayerkv",
    "d2o:budget=0.4",
};

static float *run_model(struct cb_model *m, const char *policy, const char *type, int chunk)
{
    struct cb_session *s = cb_toy_session(m, policy, type, chunk);
    const size_t n_vocab = (size_t)m->hp.n_vocab;
    float *out = cb_guarded((STEPS + 1) * n_vocab * sizeof *out);
    int32_t tok[PROMPT];

    for (int i = 0; i < PROMPT; i++)
        tok[i] = (i * 37 + i * i % 11) % m->hp.n_vocab;
    ck_assert_ok(cb_session_prefill(s, tok, PROMPT - 50, NULL));
    ck_assert_ok(cb_session_prefill(s, tok + PROMPT - 50, 50, NULL));
    memcpy(out, cb_session_logits(s), n_vocab * sizeof *out);
    for (int i = 0; i < STEPS; i++) {
        ck_assert_ok(cb_session_decode(s, (i * 13 + 5) % m->hp.n_vocab));
        memcpy(out + (size_t)(i + 1) * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    }
    cb_session_close(s);
    return out;
}

static double distance(const float *x, const float *y, size_t n)
{
    double d = 0, all = 0;

    for (size_t i = 0; i < n; i++) {
        d += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        all += (double)x[i] * (double)x[i];
    }
    return sqrt(d / all);
}

static struct tiny deep(void)
{
    struct tiny t = cb_tiny_small("qwen2");
    t.n_layer = 5;
    t.n_embd = 64;
    t.hd = 32;
    return t;
}

START_TEST(every_policy_stays_near_f16)
{
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "cpu", 2), *one = cb_toy_model(&t, "cpu", 1);
    const size_t n = (STEPS + 1) * (size_t)m->hp.n_vocab;
    const char *policy = policies[_i / 2], *type = _i % 2 ? "kivi4:32:32:32" : "kivi4:32";
    float *x = run_model(m, policy, "f16", 0), *y = run_model(m, policy, type, 0);
    float *z = run_model(one, policy, type, 0);

    ck_assert(memcmp(x, y, n * sizeof *x));
    ck_assert_double_lt(distance(x, y, n), 0.25);
    ck_assert(!memcmp(y, z, n * sizeof *y)); /* threads */
    free(x);
    free(y);
    free(z);
    cb_model_close(m);
    cb_model_close(one);
}
END_TEST

/* While nothing is older than the residual, all is as with f16; and the prompt itself always is. */
START_TEST(short_timelines_lose_nothing)
{
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "cpu", 2);
    struct cb_session *f16 = cb_toy_session(m, "full", "f16", 0);
    struct cb_session *kivi = cb_toy_session(m, "full", "kivi2", 0);
    const size_t bytes = (size_t)m->hp.n_vocab * sizeof(float);
    int32_t tok[100] = { 5, 6, 7 };

    ck_assert(!cb_session_prefill(f16, tok, 100, NULL));
    ck_assert(!cb_session_prefill(kivi, tok, 100, NULL));
    for (int i = 100; i < 140; i++) {
        const int same = !memcmp(cb_session_logits(f16), cb_session_logits(kivi), bytes);
        /* keys are quantised after token 127 was read */
        ck_assert_msg(same == (i <= 128), "%d", i);
        ck_assert(!cb_session_decode(f16, i % 50));
        ck_assert(!cb_session_decode(kivi, i % 50));
    }
    cb_session_close(f16);
    cb_session_close(kivi);
    cb_model_close(m);
}
END_TEST

START_TEST(memory_is_as_planned)
{
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "cpu", 2);
    struct cb_session *s = cb_toy_session(m, "full", _i ? "kivi4:64:32:32" : "kivi4:64", 0);
    struct cb_memory plan, got;
    int32_t tok[200] = { 5, 6, 7 };

    ck_assert(!cb_session_prefill(s, tok, 200, NULL));
    for (int i = 1; i <= 200; i++) { /* the residual fills and is emptied three times */
        ck_assert(!cb_session_decode(s, i % 50));
        ck_assert(!cb_session_plan(s, 200, i, &plan));
        cb_session_memory(s, &got);
        ck_assert_uint_eq(plan.kv_bytes, got.kv_bytes);
        ck_assert_uint_eq(plan.kv_peak_bytes, got.kv_peak_bytes);
    }
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

static const char *const refused[][3] = {
    { "kivi3", "full", "unknown type" },     { "kivi4:", "full", "unknown type" },
    { "kivi4:x", "full", "unknown type" },   { "kivi4:33", "full", "multiple of 32" },
    { "kivi2:0", "full", "multiple of 32" }, { "kivi42", "full", "unknown type" },
    { "kivi2:32:64", "full", "least 64" },   { "kivi2:192:128", "full", "multiple of 128" },
    { "kivi2:96:48", "full", "32, 64 or" },  { "kivi2:32:32:5", "full", "32 first tokens" },
    { "kivi2:-32", "full", "unknown type" }, { "kivi2:32:32:0:1", "full", "unknown type" },
};

static const char *const mixed[][2] = { { "kivi4", "q8_0" },
                                        { "q8_0", "kivi4" },
                                        { "kivi2", "f32" } };

/* Values are grouped by channels, of which the model has 32. */
START_TEST(groups_of_values_fit_the_heads)
{
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "ref", 1);
    struct cb_session_params params = { .type_k = "kivi2:128:128", .type_v = "kivi2" };
    struct cb_session *s;

    ck_assert_ok(cb_session_open(m, &params, &s));
    cb_session_close(s);
    params.type_v = "kivi2:128:64";
    cb_toy_refused(m, &params, "multiple of 64");
    cb_model_close(m);
}
END_TEST

START_TEST(other_types_do_not_mix)
{
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "ref", 1);
    const struct cb_session_params params = { .type_k = mixed[_i][0], .type_v = mixed[_i][1] };

    cb_toy_refused(m, &params, "f16");
    cb_model_close(m);
}
END_TEST

START_TEST(bad_options_are_refused)
{
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "ref", 1);
    const struct cb_session_params params = { .policy = refused[_i][1], .type_k = refused[_i][0] };

    cb_toy_refused(m, &params, refused[_i][2]);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kivi sessions");
    TCase *c = tcase_create("all");

    tcase_add_loop_test(c, every_policy_stays_near_f16, 0, 2 * sizeof policies / sizeof *policies);
    tcase_add_test(c, short_timelines_lose_nothing);
    tcase_add_loop_test(c, memory_is_as_planned, 0, 2);
    tcase_add_test(c, groups_of_values_fit_the_heads);
    tcase_add_loop_test(c, bad_options_are_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_loop_test(c, other_types_do_not_mix, 0, sizeof mixed / sizeof *mixed);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
