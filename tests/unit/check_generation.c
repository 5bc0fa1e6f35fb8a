/* SPDX-License-Identifier: MIT */
/* check_generation.c - cb_session_generate() does what a caller's own loop does. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctxbank.h"
#include "engine/session.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { PROMPT = 40, CONTEXT = 120 };

static cb_model *model;

static void setup(void)
{
    const struct tiny t = cb_tiny_small("qwen2");
    model = cb_toy_model(&t, "cpu", 1);
}

static void teardown(void)
{
    cb_model_close(model);
}

struct answer {
    char text[8192];
    size_t len;
    int calls, stop_at; /* stop_at: the call that stops; 0: none */
};

static int take_text(void *arg, const char *text, size_t len)
{
    struct answer *a = arg;

    ck_assert_int_eq(text[len], 0); /* a byte of the text may be 0 as well */
    ck_assert_uint_lt(a->len + len, sizeof a->text);
    memcpy(a->text + a->len, text, len + 1);
    a->len += len;
    return ++a->calls == a->stop_at;
}

static cb_session *after_prompt(void)
{
    struct cb_session_params p = cb_session_defaults();
    int32_t ids[PROMPT];
    cb_session *s;

    p.n_ctx = CONTEXT;
    for (int i = 0; i < PROMPT; i++)
        ids[i] = 3 + i * 7 % 50;
    ck_assert_ok(cb_session_open(model, &p, &s));
    ck_assert_ok(cb_session_prefill(s, ids, PROMPT, NULL));
    return s;
}

static cb_sampler *sampler_of(float temp, uint64_t seed)
{
    struct cb_sampler_params p = cb_sampler_defaults();
    cb_sampler *x;

    p.temp = temp;
    p.seed = seed;
    p.top_k = 0;
    p.top_p = 1;
    p.min_p = 0;
    p.repeat_penalty = 1.3f;
    ck_assert_int_eq(cb_sampler_new(&p, cb_n_vocab(model), &x), CB_OK);
    return x;
}

/* The same loop by hand. Returns the number of tokens. */
static int by_hand(cb_session *s, cb_sampler *x, int most, struct answer *a, int *ended)
{
    cb_detokenizer *d;
    const char *text;
    size_t len;
    int n = 0;

    *ended = 0;
    ck_assert_int_eq(cb_detokenizer_new(model, 0, &d), CB_OK);
    while (n < most && cb_session_len(s) < CONTEXT) {
        const int32_t id = cb_sampler_pick(x, cb_session_logits(s));
        if ((*ended = cb_token_is_end(model, id)))
            break;
        cb_sampler_accept(x, id);
        ck_assert_int_eq(cb_session_decode(s, id), CB_OK);
        ck_assert_int_eq(cb_detokenizer_push(d, id, &text, &len), CB_OK);
        take_text(a, text, len);
        n++;
    }
    cb_detokenizer_end(d, &text, &len);
    take_text(a, text, len);
    cb_detokenizer_free(d);
    return n;
}

/* Seeds of which some end the turn and some fill the context */
START_TEST(as_a_loop_by_hand)
{
    int n_ended = 0, n_full = 0;

    for (uint64_t seed = 0; seed < 40; seed++) {
        cb_session *s = after_prompt(), *t = after_prompt();
        cb_sampler *x = sampler_of(2, seed), *y = sampler_of(2, seed);
        struct answer a = { .len = 0 }, b = { .len = 0 };
        const int most = seed % 2 ? 1000 : 20;
        int ended;
        const int want = by_hand(s, x, most, &a, &ended);
        ck_assert_int_eq(cb_session_generate(t, y, most, take_text, &b), want);
        ck_assert_uint_eq(a.len, b.len);
        ck_assert(!memcmp(a.text, b.text, a.len));
        ck_assert_int_eq(cb_session_len(t), cb_session_len(s));
        ck_assert(!memcmp(cb_session_tokens(t), cb_session_tokens(s),
                          (size_t)cb_session_len(s) * sizeof(int32_t)));
        n_ended += ended;
        n_full += cb_session_len(t) == CONTEXT;
        cb_sampler_free(x);
        cb_sampler_free(y);
        cb_session_close(s);
        cb_session_close(t);
    }
    ck_assert_int_gt(n_ended, 0);
    ck_assert_int_gt(n_full, 0);
}
END_TEST

START_TEST(the_caller_stops_it)
{
    cb_session *s = after_prompt();
    cb_sampler *x = sampler_of(0, 1);
    struct answer a = { .stop_at = 3 };
    const int n = cb_session_generate(s, x, 60, take_text, &a);

    ck_assert_int_ge(n, 3);
    ck_assert_int_lt(n, 60);
    ck_assert_int_eq(cb_session_len(s), PROMPT + n);
    ck_assert_int_eq(cb_session_generate(s, x, 5, NULL, NULL), 5); /* and it goes on */
    cb_sampler_free(x);
    cb_session_close(s);
}
END_TEST

START_TEST(refusals)
{
    cb_session *s = after_prompt();
    cb_sampler *x = sampler_of(0, 1);

    ck_assert_int_eq(cb_session_generate(s, x, 0, NULL, NULL), 0);
    ck_assert_int_eq(cb_session_generate(s, x, -1, NULL, NULL), CB_EARG);
    cb_session_clear(s);
    ck_assert_int_eq(cb_session_generate(s, x, 1, NULL, NULL), CB_EARG);
    ck_assert_str_eq(cb_error(), "generate: the session is empty");
    cb_sampler_free(x);
    cb_session_close(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("generation");
    TCase *c = tcase_create("generation");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, as_a_loop_by_hand);
    tcase_add_test(c, the_caller_stops_it);
    tcase_add_test(c, refusals);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
