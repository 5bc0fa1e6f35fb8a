/* SPDX-License-Identifier: MIT */
/* check_omnikv.c - what filter layers choose and sparse layers read: the formula's vectors, and
 * what must hold for any model. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/readers/chooser.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "vectors/selection.h"

static const struct hparams small = { .n_layer = 3,
                                      .n_embd = 16,
                                      .n_head = 4,
                                      .n_kv = 2,
                                      .hd = 4,
                                      .n_ff = 16,
                                      .n_vocab = 16,
                                      .n_ctx_train = 64,
                                      .n_rot = 4 };
static const char *const devices[] = { "ref", "cpu" };

static void near(const float *x, const double *want, int n, double tol)
{
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabs((double)x[i] - want[i]) <= tol, "[%d] %.9g, not %.9g", i, (double)x[i],
                      want[i]);
}

/* ---- vectors ---- */

static const struct {
    const char *policy;
    const int *want;
} vectors[] = {
    { "omnikv:filter=0,wait=1,budget=4", omnikv_last },
    { "omnikv:filter=0,wait=1,budget=4,score=raw", omnikv_raw },
    { "omnikv:filter=0,wait=1,budget=4,select=uniform,window=3", omnikv_uniform },
    { "omnikv:filter=0,wait=1,budget=4,select=exp,window=3", omnikv_exp },
};

static void run_vector(const char *device, const char *policy, const int *want, int chunk)
{
    struct toy t;
    const int32_t *slot;
    float out[3 * 16];
    int n;

    cb_toy_open(&t, device, 2, &small, 12, policy, "f32", "f32", 7);
    cb_toy_prompt(&t, 11, chunk, NULL);
    cb_toy_decode(&t, out);
    slot = cb_chooser_slots(&t.s->attention, 0, &n);
    ck_assert_int_eq(n, 5);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(slot[i], want[i]);
    ck_assert_int_eq(slot[4], 11);
    if (want == omnikv_last)
        near(out + 2 * 16, omnikv_sparse_out, 16, 2e-6);
    cb_toy_close(&t);
}

START_TEST(chooses_as_the_formula)
{
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        run_vector(devices[d], vectors[_i].policy, vectors[_i].want, 11);
        run_vector(devices[d], vectors[_i].policy, vectors[_i].want, 2);
    }
}
END_TEST

/* ---- tiny models ---- */

enum { PROMPT = 70, STEPS = 14 };

static struct tiny deep(void)
{
    struct tiny t = cb_tiny_small("qwen2");
    t.n_layer = 6;
    t.n_embd = 64;
    return t;
}

/* Logits after the prompt and after each of STEPS decoded tokens -> out[STEPS + 1][n_vocab] */
static float *run_model(struct cb_model *m, const char *policy, int chunk, uint64_t *read)
{
    struct cb_session *s = cb_toy_session(m, policy, "f32", chunk);
    const size_t n_vocab = (size_t)m->hp.n_vocab;
    float *out = malloc((STEPS + 1) * n_vocab * sizeof *out);
    struct cb_memory mem;
    int32_t tok[PROMPT];

    for (int i = 0; i < PROMPT; i++)
        tok[i] = (i * 37 + i * i % 11) % m->hp.n_vocab;
    ck_assert_ok(cb_session_prefill(s, tok, PROMPT, NULL));
    memcpy(out, cb_session_logits(s), n_vocab * sizeof *out);
    for (int i = 0; i < STEPS; i++) {
        ck_assert_ok(cb_session_decode(s, (i * 13 + 5) % m->hp.n_vocab));
        memcpy(out + (size_t)(i + 1) * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    }
    cb_session_memory(s, &mem);
    if (read)
        *read = mem.kv_read_bytes_per_token;
    cb_session_close(s);
    return out;
}

static void compare(struct cb_model *m, const char *a, const char *b, int same, int chunk)
{
    const size_t n = (size_t)m->hp.n_vocab * sizeof(float);
    float *x = run_model(m, a, 0, NULL), *y = run_model(m, b, chunk, NULL);

    ck_assert_msg(!memcmp(x, y, n), "%s, %s: the first token differs", a, b);
    ck_assert_msg(same == !memcmp(x, y, (STEPS + 1) * n), "%s, %s: %s", a, b,
                  same ? "differ" : "are the same");
    free(x);
    free(y);
}

START_TEST(reading_all_is_full_attention)
{
    static const char *const same[] = {
        "omnikv:filter=1,budget=1000",
        "omnikv:filter=1,budget=70,tail_max=1000",
        "omnikv:filter=1+3,wait=1,budget=1000,tail_max=7",
        "omnikv:filter=0+1+2+3+4+5,budget=3",
        "omnikv:filter=1,budget=1000,select=exp",
        "omnikv:filter=1+3,mem=100",
        "omnikv:filter=5,budget=1",
    };
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, devices[_i], 2);

    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        compare(m, "full", same[i], 1, 0);
    compare(m, "full", "omnikv:filter=1,budget=20", 0, 0);
    cb_model_close(m);
}
END_TEST

START_TEST(threads_and_chunks_do_not_matter)
{
    static const char *const policy[] = { "omnikv:filter=1+3,budget=20",
                                          "omnikv:filter=1,budget=20,select=uniform,window=7",
                                          "omnikv:filter=1,budget=0.1,select=exp,tail_max=9" };
    const struct tiny t = deep();
    struct cb_model *one = cb_toy_model(&t, "cpu", 1), *two = cb_toy_model(&t, "cpu", 2);
    const size_t bytes = (STEPS + 1) * (size_t)one->hp.n_vocab * sizeof(float);

    for (size_t i = 0; i < sizeof policy / sizeof *policy; i++) {
        float *x = run_model(one, policy[i], 0, NULL), *y = run_model(two, policy[i], 0, NULL);
        ck_assert_msg(!memcmp(x, y, bytes), "%s: threads", policy[i]);
        compare(two, policy[i], policy[i], 1, 7);
        free(x);
        free(y);
    }
    cb_model_close(one);
    cb_model_close(two);
}
END_TEST

/* Scores of rows that were kept equal those computed again for the candidates at hand: with a tail
 * that never ends, and with one that is moved at every step. */
START_TEST(a_moved_tail_is_only_more_candidates)
{
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "ref", 2);
    uint64_t few, many;

    compare(m, "omnikv:filter=1,budget=1000,tail_max=1000",
            "omnikv:filter=1,budget=1000,tail_max=3", 1, 0);
    free(run_model(m, "omnikv:filter=1,budget=20,tail_max=1000", 0, &many));
    free(run_model(m, "omnikv:filter=1,budget=20,tail_max=3", 0, &few));
    ck_assert_uint_lt(few, many);
    cb_model_close(m);
}
END_TEST

/* T is sorted, of the prompt, as long as asked, and the rest is the tail. */
START_TEST(the_choice_is_k_of_the_prompt_and_the_tail)
{
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "cpu", 2);
    struct cb_session *s = cb_toy_session(m, "omnikv:filter=1+3,budget=20", NULL, 0);
    int32_t tok[PROMPT] = { 1, 2, 3 };
    int n;

    ck_assert(!cb_session_prefill(s, tok, PROMPT, NULL));
    for (int i = 0; i < 5; i++) {
        ck_assert(!cb_session_decode(s, i));
        for (int l = 1; l <= 3; l += 2) {
            const int32_t *slot = cb_chooser_slots(&s->attention, l, &n);
            ck_assert_int_eq(n, 20 + i + 1);
            for (int j = 1; j < n; j++)
                ck_assert_int_lt(slot[j - 1], slot[j]);
            ck_assert_int_ge(slot[0], 0);
            ck_assert_int_lt(slot[19], PROMPT);
            ck_assert_int_eq(slot[20], PROMPT);
        }
    }
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* When the tail exceeds tail_max, all but its last `window` tokens become candidates; the memory
 * plan knows. */
START_TEST(the_newest_tokens_stay_in_the_tail)
{
    static const struct {
        const char *policy;
        int most, left;
    } how[] = { { "omnikv:filter=1,budget=20,tail_max=7,window=3", 7, 3 },
                { "omnikv:filter=1,budget=20,tail_max=5,window=9,select=exp", 5, 5 },
                { "omnikv:filter=1,budget=20,tail_max=1", 1, 1 } };
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "cpu", 2);
    struct cb_session *s = cb_toy_session(m, how[_i].policy, "f32", 0);
    struct cb_memory plan, got;
    int32_t tok[PROMPT] = { 1, 2, 3 };
    int n, tail = 0;

    ck_assert_ok(cb_session_prefill(s, tok, PROMPT, NULL));
    for (int i = 1; i <= 30; i++) {
        ck_assert_ok(cb_session_decode(s, i % m->hp.n_vocab));
        const int32_t *slot = cb_chooser_slots(&s->attention, 1, &n);
        tail = tail == how[_i].most ? how[_i].left : tail + 1;
        ck_assert_int_eq(n, 20 + tail);
        for (int j = 0; j < tail; j++)
            ck_assert_int_eq(slot[20 + j], PROMPT + i - tail + j);
        ck_assert_ok(cb_session_plan(s, PROMPT, i, &plan));
        cb_session_memory(s, &got);
        ck_assert_uint_eq(got.kv_read_bytes_per_token, plan.kv_read_bytes_per_token);
    }
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* ---- budgets ---- */

static const struct {
    int n_layer;
    const char *policy;
    int n, k;
} budgets[] = {
    { 32, "omnikv:filter=2+8+18,wait=1,mem=30", 128000, 8533 },
    { 32, "omnikv:filter=2+8+18,wait=1,mem=30", 739, 49 },
    { 48, "omnikv:filter=3+11+30,wait=1,mem=30", 739, 102 },
    { 48, "omnikv:filter=3+11+30,wait=1,mem=40", 739, 193 },
    { 48, "omnikv:filter=3+11+30,wait=1,mem=50", 739, 284 },
    { 32, "omnikv:filter=2+8+18,budget=0.067", 1000, 67 },
    { 32, "omnikv:filter=paper,wait=1,mem=30", 128000, 8533 },
    { 48, "omnikv:filter=paper,wait=1,mem=30", 128000, 8533 },
    { 80, "omnikv:filter=paper,wait=1,mem=20", 128000, 10971 },
};

START_TEST(shares_of_the_paper)
{
    const struct shape sh = { .n_layer = budgets[_i].n_layer, .n_head = 32, .n_kv = 8, .hd = 128 };
    struct layer_plan *plan = calloc((size_t)sh.n_layer, sizeof *plan);
    struct policy *p;
    int dense = 0, first = -1;

    ck_assert_ok(cb_policy_open(budgets[_i].policy, &sh, &p));
    for (int l = 0; l < sh.n_layer; l++)
        plan[l].reads = -1;
    ck_assert_msg(!p->m->plan(p, &sh, plan), "%s", cb_error());
    for (int l = 0; l < sh.n_layer; l++) {
        dense += plan[l].reads < 0;
        if (first < 0 && cb_plan_chooses(&plan[l]))
            first = l;
        if (plan[l].reads >= 0)
            ck_assert(cb_plan_chooses(&plan[plan[l].reads]));
    }
    ck_assert_int_eq((int)(plan[first].choice.share * budgets[_i].n), budgets[_i].k);
    if (_i < 2 || _i == 6)
        ck_assert_int_eq(dense, 8);
    if (_i == 7)
        ck_assert_int_eq(dense, 12);
    if (_i == 8)
        ck_assert_int_eq(dense, 10);
    if (_i >= 2 && _i < 5)
        ck_assert_int_eq(dense, 9);
    cb_policy_close(p);
    free(plan);
}
END_TEST

static const char *const refused[][2] = {
    { "omnikv:filter=6", "layers 0 to 5" },    { "omnikv:filter=-1", "layers 0 to 5" },
    { "omnikv:filter=3+1", "ascend" },         { "omnikv:filter=1+1", "ascend" },
    { "omnikv:filter=", "joined by +" },       { "omnikv:filter=1,3", "unknown option" },
    { "omnikv:filter=1+", "joined by +" },     { "omnikv:filter=one", "joined by +" },
    { "omnikv:budget=0", "must be" },          { "omnikv:budget=-3", "must be" },
    { "omnikv:filter=1,mem=30", "already" },   { "omnikv:budget=9,mem=90", "either" },
    { "omnikv:select=first", "one of" },       { "omnikv:windw=3", "window" },
    { "omnikv:window=0", "must be" },          { "omnikv:filter=1,mem=0", "already" },
    { "omnikv:filter=99999999999", "0 to 5" }, { "omnikv:filter=paper", "none is known" },
};

START_TEST(bad_options_are_refused)
{
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "ref", 1);
    const struct cb_session_params params = { .policy = refused[_i][0] };

    cb_toy_refused(m, &params, refused[_i][1]);
    cb_model_close(m);
}
END_TEST

START_TEST(an_uncalibrated_default_says_so)
{
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "ref", 1);
    struct cb_session *s = cb_toy_session(m, "omnikv", NULL, 0);

    ck_assert_ptr_nonnull(strstr(cb_session_note(s), "not calibrated"));
    cb_session_close(s);
    s = cb_toy_session(m, "omnikv:filter=2", NULL, 0);
    ck_assert_str_eq(cb_session_note(s), "");
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("omnikv");
    TCase *c = tcase_create("all");

    tcase_add_loop_test(c, chooses_as_the_formula, 0, sizeof vectors / sizeof *vectors);
    tcase_add_loop_test(c, reading_all_is_full_attention, 0, sizeof devices / sizeof *devices);
    tcase_add_test(c, threads_and_chunks_do_not_matter);
    tcase_add_test(c, a_moved_tail_is_only_more_candidates);
    tcase_add_test(c, the_choice_is_k_of_the_prompt_and_the_tail);
    tcase_add_loop_test(c, the_newest_tokens_stay_in_the_tail, 0, 3);
    tcase_add_loop_test(c, shares_of_the_paper, 0, sizeof budgets / sizeof *budgets);
    tcase_add_loop_test(c, bad_options_are_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_test(c, an_uncalibrated_default_says_so);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
