/* SPDX-License-Identifier: MIT */
/* check_saved_bank.c - a session that was saved and loaded goes on, to the bit, as if it had never
 * left memory. */
#include <math.h>

#include "device/prepacked.h"
#include "kit/isa.h"
#include "saved.h"

/* After a prompt, after generated tokens, after a second prompt */
START_TEST(loaded_goes_on)
{
    const struct setting *r = &cb_setting[_i];

    for (int when = 0; when < 3; when++) {
        cb_session *s, *l;
        if (CB_SLOWED > 1 && when != _i % 3)
            continue;
        s = filled(r, when);
        save(s);
        l = load(0);
        same(s, l, r->policy);
        steps(s, 500, N_STEP);
        steps(l, 500, N_STEP);
        same(s, l, r->policy);
        prefill(s, 550, 70);
        prefill(l, 550, 70);
        same(s, l, r->policy);
        steps(s, 630, N_STEP);
        steps(l, 630, N_STEP);
        same(s, l, r->policy);
        cb_session_close(l);
        l = load(0); /* writing to what was mapped has not changed the file */
        ck_assert_int_eq(cb_bank_verify(path), CB_OK);
        cb_session_close(l);
        cb_session_close(s);
    }
}
END_TEST

/* Saved on one instruction set, loaded on another: rounded once, so about the same logits. A block
 * that is read in a wrong order gives others. */
static void moves(const struct setting *r, const char *from, const char *to)
{
    const struct tiny t = cb_tiny_get("qwen2");
    const struct cb_model_params a = { .n_threads = 2, .isa = from },
                                 b = { .n_threads = 2, .isa = to };
    cb_model *mine = m, *there = cb_toy_model_with(&t, &b);
    cb_session *s, *l;
    double most = 0, off = 0;

    m = cb_toy_model_with(&t, &a);
    s = filled(r, 1);
    save(s);
    ck_assert_msg(!cb_session_load(there, path, 0, &l), "%s: %s", r->policy, cb_error());
    steps(s, 500, 1);
    steps(l, 500, 1);
    for (int i = 0; i < cb_n_vocab(m); i++) {
        const double x = (double)cb_session_logits(s)[i], y = (double)cb_session_logits(l)[i];
        most = fabs(x) > most ? fabs(x) : most;
        off = fabs(x - y) > off ? fabs(x - y) : off;
    }
    ck_assert_msg(off < 0.02 * most, "%s, %s to %s: %g of %g", r->policy, from, to, off, most);
    prefill(l, 550, 70);
    steps(l, 630, N_STEP);
    cb_session_close(l);
    cb_session_close(s);
    cb_model_close(m);
    cb_model_close(there);
    m = mine;
}

START_TEST(another_instruction_set)
{
    static const struct setting list[] = { { "full", "f16", "dense", 1 },
                                           { "full", "bf16", "dense", 1 },
                                           { "full", "q8_0", "dense", 1 },
                                           { "full", "f32", "dense", 1 },
                                           { "h2o:budget=140", "f16", "dense", 0 } };
    const char *isa[N_ISA];
    int n = 0;

    for (int i = 0; i < N_ISA; i++) {
        struct device *d = cb_isa_open(i, 1);
        if (d && (i == ISA_SCALAR || cb_prepacked_panel(cb_isa[i])))
            isa[n++] = cb_isa[i];
        cb_device_close(d);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (i != j && (CB_SLOWED == 1 || j == (i + 1) % n))
                moves(&list[_i], isa[i], isa[j]);
    if (n == 1)
        cb_skip("only one instruction set");
}
END_TEST

/* Rows that are asked for before they are read are the same rows. */
START_TEST(asked_for)
{
    const struct setting *r = &cb_setting[_i];
    cb_session *s = filled(r, 0), *l;

    save(s);
    l = load(0);
    l->attention.cold_pages = 1000;
    steps(s, 500, N_STEP);
    steps(l, 500, N_STEP);
    same(s, l, r->policy);
    prefill(s, 550, 70);
    prefill(l, 550, 70);
    same(s, l, r->policy);
    if (l->mapped)
        ck_assert_int_gt(l->attention.cold_pages, 900);
    cb_session_close(l);
    cb_session_close(s);
}
END_TEST

START_TEST(another_capacity)
{
    cb_session *s = filled(&cb_setting[0], 1), *l, *none;

    save(s);
    l = load(4 * N_CTX);
    ck_assert_int_eq(cb_session_n_ctx(l), 4 * N_CTX);
    steps(s, 500, N_STEP);
    steps(l, 500, N_STEP);
    same(s, l, "larger");
    ck_assert_int_eq(cb_session_load(m, path, 100, &none), CB_EFULL);
    ck_assert_ptr_null(none);
    ck_assert_msg(strstr(cb_error(), "context") != NULL, "%s", cb_error());
    cb_session_close(s);
    cb_session_close(l);
}
END_TEST

START_TEST(an_empty_session)
{
    cb_session *s = cb_setting_session(m, &cb_setting[0], N_CTX), *l;

    save(s);
    l = load(0);
    ck_assert_int_eq(cb_session_len(l), 0);
    prefill(s, 0, 50);
    prefill(l, 0, 50);
    same(s, l, "empty");
    cb_session_close(s);
    cb_session_close(l);
}
END_TEST

START_TEST(descriptions)
{
    cb_session *s = filled(&cb_setting[5], 1);
    char *json;

    save(s);
    ck_assert_int_eq(cb_bank_describe(path, &json), CB_OK);
    ck_assert_msg(strstr(json, cb_setting[5].policy) != NULL, "%s", json);
    ck_assert_msg(strstr(json, "\"tokens\": 312") != NULL, "%s", json);
    free(json);
    cb_session_close(s);
}
END_TEST

/* The first words stand in the description: none of them, control bytes neither, harms the file. */
START_TEST(any_first_words)
{
    enum { N = 24 };
    int32_t id[N];

    for (int from = 0; from < cb_n_vocab(m); from += N) {
        cb_session *s = cb_setting_session(m, &cb_setting[0], N_CTX), *l;
        for (int i = 0; i < N; i++)
            id[i] = (int32_t)((from + i) % cb_n_vocab(m));
        ck_assert_ok(cb_session_prefill(s, id, N, NULL));
        save(s);
        l = load(0);
        same(s, l, "tokens of any bytes");
        cb_session_close(l);
        cb_session_close(s);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("saved bank");
    TCase *c = tcase_create("saved bank");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, loaded_goes_on, 0, cb_n_setting);
    tcase_add_loop_test(c, another_instruction_set, 0, 5);
    tcase_add_loop_test(c, asked_for, 0, cb_n_setting);
    tcase_add_test(c, another_capacity);
    tcase_add_test(c, an_empty_session);
    tcase_add_test(c, descriptions);
    tcase_add_test(c, any_first_words);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
