/* SPDX-License-Identifier: MIT */
/* check_rank_wait.c - a rank's waits: what they cost in processor time, and how late they end. */
#include <check.h>

#include "kit/suite.h"
#include "ranks/rank_wait.h"

static const double TEST_S = 1e-6, SLEEP_S = 5e-6, LATE_S = 5e-6;

struct cost {
    double late_s, busy_s;
    int n_sleep;
};

/* A wait whose answer comes after take_s: a test takes TEST_S, a sleep SLEEP_S of the processor,
 * and LATE_S more than asked for. */
static struct cost wait_for(struct rank_wait *w, double take_s, int crowded)
{
    struct cost c = { 0, 0, 0 };
    double at = 0, least_s = 0;
    int64_t ns;

    for (;;) {
        at += TEST_S;
        c.busy_s += TEST_S;
        if (at >= take_s)
            break;
        least_s = at;
        ns = cb_rank_wait_pause(w, at, crowded);
        ck_assert_int_ge(ns, 0);
        ck_assert_int_lt(ns, 1000000000);
        if (ns) {
            at += (double)ns * 1e-9 + LATE_S;
            c.busy_s += SLEEP_S;
            c.n_sleep++;
        }
    }
    c.late_s = at - take_s;
    cb_rank_wait_learn(w, least_s);
    return c;
}

START_TEST(short_waits_are_answered_at_once)
{
    struct rank_wait w = { 0 };

    for (int i = 0; i < 200; i++) {
        const struct cost c = wait_for(&w, 3e-6 + 1e-7 * (i % 300), 0);
        ck_assert_int_eq(c.n_sleep, 0);
        ck_assert(c.late_s <= TEST_S);
    }
}
END_TEST

/* From 1 to 100 ms: a quarter late at most, and few hundredths of the wait busy. */
START_TEST(long_waits_are_slept)
{
    static const double take_s[] = { 1e-3, 3e-3, 10e-3, 30e-3, 100e-3 };

    for (int k = 0; k < 5; k++) {
        struct rank_wait w = { 0 };
        for (int i = 0; i < 100; i++) {
            const double s = take_s[k] * (1 + 0.01 * (i * 7 % 20));
            const struct cost c = wait_for(&w, s, 0);
            ck_assert(c.late_s <= s / 4 + 20e-6);
            if (i >= 8 && w.in_vain % 16 != 1) /* it has learned, and did not try a short one */
                ck_assert(c.busy_s < (s < 2e-3 ? 0.09 : 0.03) * s);
        }
    }
}
END_TEST

START_TEST(a_short_wait_after_long_ones)
{
    struct rank_wait w = { 0 };

    for (int i = 0; i < 100; i++)
        (void)wait_for(&w, 5e-3, 0);
    ck_assert(wait_for(&w, 10e-6, 0).late_s < 3e-3);
    ck_assert(wait_for(&w, 10e-6, 0).late_s <= TEST_S);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(wait_for(&w, 10e-6, 0).n_sleep, 0);
}
END_TEST

/* Layers' messages are short, and one a token is long: the short ones stay so. */
START_TEST(long_waits_among_short_ones)
{
    struct rank_wait w = { 0 };

    for (int i = 0; i < 600; i++) {
        const double s = i % 30 ? 15e-6 : 4e-3;
        const struct cost c = wait_for(&w, s, 0);
        ck_assert(c.late_s <= s / 4 + 20e-6);
        ck_assert(i % 30 == 0 || !c.n_sleep);
    }
}
END_TEST

START_TEST(a_crowd_never_tests_without_a_pause)
{
    struct rank_wait w = { 0 };

    for (int i = 0; i < 100; i++) {
        const double s = i % 2 ? 30e-6 : 2e-3;
        ck_assert_int_gt(cb_rank_wait_pause(&w, 0, 1), 0);
        (void)wait_for(&w, s, 1);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rank_wait");
    TCase *t = tcase_create("rank_wait");

    tcase_add_test(t, short_waits_are_answered_at_once);
    tcase_add_test(t, long_waits_are_slept);
    tcase_add_test(t, a_short_wait_after_long_ones);
    tcase_add_test(t, long_waits_among_short_ones);
    tcase_add_test(t, a_crowd_never_tests_without_a_pause);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
