/* SPDX-License-Identifier: MIT */
/* check_matrix.c - every policy with every form of prefill and every type of keys and values: the
 * pair works over two turns, or is refused when the session opens, with the reason. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attention/attend.h"
#include "engine/session.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { CTX = 512, PROMPT = 330, STEPS = 8, SECOND = 20 };

/* In the order of the table */
static const char *const forms[] = {
    "dense", "omnikv:filter=0+2,chunk=32,ratio=0.5", "xattention:threshold=0.3",
    "sieve:threshold=0.3",
    "minference:recall=0.5,local=100,vertical=40,slash=100,blocks=2,least=0,chunk=128"
};
enum { N_FORM = sizeof forms / sizeof *forms };

static cb_model *open_model(void)
{
    struct tiny t = cb_tiny_small("qwen2");

    t.n_layer = 4;
    t.hd = 32; /* all types take it */
    t.n_ctx = CTX;
    return cb_toy_model(&t, "cpu", 2);
}

static int open_session(cb_model *m, const char *policy, const char *prefill, const char *type,
                        cb_session **s)
{
    const struct cb_session_params p = { .n_ctx = CTX,
                                         .chunk = 128,
                                         .policy = policy,
                                         .prefill = prefill,
                                         .type_k = type,
                                         .type_v = cb_toy_values(type) };
    return cb_session_open(m, &p, s);
}

static void is_finite(const cb_session *s, const char *what)
{
    const float *x = cb_session_logits(s);
    float top = 0;

    for (int i = 0; i < s->model->hp.n_vocab; i++) {
        ck_assert_msg(isfinite(x[i]), "%s: a logit is %g", what, (double)x[i]);
        top = fmaxf(top, fabsf(x[i]));
    }
    ck_assert_msg(top > 0, "%s: no logits", what);
}

static void converse(cb_session *s, const char *what)
{
    const int32_t *tok = cb_toy_text(s->model);

    ck_assert_ok(cb_session_prefill(s, tok, PROMPT, NULL));
    for (int turn = 0; turn < 2; turn++) {
        is_finite(s, what);
        for (int i = 0; i < STEPS; i++) {
            ck_assert_ok(cb_session_decode(s, tok[PROMPT + i]));
            is_finite(s, what);
        }
        if (!turn)
            ck_assert_ok(cb_session_prefill(s, tok + PROMPT, SECOND, NULL));
    }
}

/* What the plan of an open session says about a form of prefill */
static const char *expected(const cb_session *s, int form)
{
    return cb_attention_refuses(cb_prompt_method_at(form), s->attention.plan, s->bank.n_layer);
}

/* Where stored rows are turned or merged later, they cannot be quantised in groups. */
static int changes_rows(const char *policy)
{
    return !strncmp(policy, "infllm", 6) || !strncmp(policy, "minicache", 9);
}

START_TEST(a_pair_works_or_is_refused)
{
    cb_model *m = open_model();
    char policy[96], what[192];
    int n_refused = 0;

    for (int i = 0; cb_setting_policy(i, policy, sizeof policy); i++)
        for (int f = 0; f < N_FORM; f++) {
            cb_session *dense, *s;
            const char *why;
            snprintf(what, sizeof what, "%s, %s, %s", policy, forms[f], cb_setting_type[_i]);
            if (!strcmp(cb_setting_type[_i], "planes") && strncmp(policy, "sieve", 5)) {
                ck_assert_int_ne(open_session(m, policy, NULL, cb_setting_type[_i], &dense), CB_OK);
                ck_assert_msg(strstr(cb_error(), "of type "), "%s: %s", what, cb_error());
                break;
            }
            if (!f && changes_rows(policy) && !strncmp(cb_setting_type[_i], "kivi", 4)) {
                ck_assert_int_eq(open_session(m, policy, NULL, cb_setting_type[_i], &dense),
                                 CB_EARG);
                ck_assert_msg(strstr(cb_error(), "of type kivi: "), "%s", cb_error());
                n_refused += strncmp(policy, "infllm", 6) ? 0 : N_FORM - 1;
                break;
            }
            ck_assert_msg(!open_session(m, policy, NULL, cb_setting_type[_i], &dense), "%s: %s",
                          what, cb_error());
            why = expected(dense, f);
            if (why) {
                n_refused++;
                ck_assert_int_eq(open_session(m, policy, forms[f], cb_setting_type[_i], &s),
                                 CB_EARG);
                ck_assert_msg(strstr(cb_error(), why), "%s: %s", what, cb_error());
            } else {
                ck_assert_msg(!open_session(m, policy, forms[f], cb_setting_type[_i], &s), "%s: %s",
                              what, cb_error());
                if ((i + f + _i) % cb_test_nth() == 0)
                    converse(s, what);
                cb_session_close(s);
            }
            cb_session_close(dense);
        }
    /* each form: pod, infllm, pyramidinfer, and five that drop tokens within the prompt; by blocks:
     * h2o and d2o, each in two ways, as well */
    ck_assert_int_eq(n_refused, strcmp(cb_setting_type[_i], "planes") ? 9 + 13 * (N_FORM - 2) : 0);
    ck_assert_ptr_null(cb_prompt_method_at(N_FORM));
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("matrix");
    TCase *c = tcase_create("all");

    tcase_add_loop_test(c, a_pair_works_or_is_refused, 0, cb_n_setting_type);
    tcase_set_timeout(c, 300);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
