/* SPDX-License-Identifier: MIT */
/* check_par.c - every item of every loop is done once, whatever the number of threads and cores. */
#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "par.h"

enum { MOST = 1000 };

struct count {
    struct par *p;
    atomic_int done[MOST];
    atomic_int bad_thread;
    int loops;
};

static void one(void *ctx, int i, int thread)
{
    struct count *c = ctx;
    atomic_fetch_add(&c->done[i], 1);
    if (thread < 0 || thread >= cb_par_threads(c->p))
        atomic_store(&c->bad_thread, 1);
}

/* loops of all sizes, one after the other, as the layers of a model come */
static void many_loops(void *ctx)
{
    struct count *c = ctx;
    int sum[MOST] = { 0 };

    for (int k = 0; k < c->loops; k++) {
        const int n = k * 37 % MOST;
        cb_par_for(c->p, n, one, c);
        for (int i = 0; i < n; i++)
            sum[i]++;
        for (int i = 0; i < MOST; i += 97) /* the loop is over when cb_par_for returns */
            ck_assert_int_eq(atomic_load(&c->done[i]), sum[i]);
    }
    for (int i = 0; i < MOST; i++)
        ck_assert_int_eq(atomic_load(&c->done[i]), sum[i]);
    ck_assert_int_eq(c->bad_thread, 0);
}

START_TEST(items_are_done_once)
{
    struct count c = { .loops = 3000 };

    ck_assert_int_eq(cb_par_new(_i, &c.p), 0);
    cb_par_run(c.p, many_loops, &c);
    cb_par_free(c.p);
}
END_TEST

START_TEST(a_loop_outside_a_region_opens_its_own)
{
    struct count c = { .loops = 50 };

    ck_assert_int_eq(cb_par_new(3, &c.p), 0);
    many_loops(&c);
    cb_par_free(c.p);
}
END_TEST

static void sleepy(void *ctx)
{
    struct count *c = ctx;
    for (int k = 0; k < 20; k++) {
        usleep(2000); /* long enough that idle threads sleep */
        cb_par_for(c->p, 100, one, c);
    }
}

START_TEST(sleeping_threads_wake)
{
    struct count c = { .loops = 0 };

    ck_assert_int_eq(cb_par_new(4, &c.p), 0);
    cb_par_run(c.p, sleepy, &c);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(c.done[i], 20);
    cb_par_free(c.p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("par");
    TCase *t = tcase_create("loops");
    SRunner *r = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, items_are_done_once, 1, 9);
    tcase_add_test(t, a_loop_outside_a_region_opens_its_own);
    tcase_add_test(t, sleeping_threads_wake);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
