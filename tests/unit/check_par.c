/* SPDX-License-Identifier: MIT */
/* check_par.c - every item of every loop is done once, whatever the number of threads and cores. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "par/affinity.h"
#include "par/backoff.h"
#include "par/par.h"

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

/* ---- fewer threads than all ---- */

struct few {
    struct par *p;
    atomic_int by[8], done;
};

static void slow_one(void *ctx, int i, int thread)
{
    struct few *c = ctx;

    (void)i;
    usleep(200);
    atomic_fetch_add(&c->by[thread], 1);
    atomic_fetch_add(&c->done, 1);
}

static void slow_loops(void *ctx)
{
    struct few *c = ctx;

    for (int k = 0; k < 10; k++)
        cb_par_for(c->p, 40, slow_one, c);
}

static int all_worked(struct few *c, int n)
{
    for (int i = 0; i < n; i++)
        if (!atomic_load(&c->by[i]))
            return 0;
    return 1;
}

START_TEST(a_limit_lets_threads_sleep)
{
    static const int limit[] = { 4, 2, 1, 3, 4 };
    struct few c;

    ck_assert_int_eq(cb_par_new(4, &c.p), 0);
    for (int k = 0; k < 5; k++) {
        int n = 0;
        for (int i = 0; i < 8; i++)
            atomic_init(&c.by[i], 0);
        atomic_init(&c.done, 0);
        cb_par_limit(c.p, limit[k]);
        do /* on a busy machine a thread may come late, or keep away for a while */
            cb_par_run(c.p, slow_loops, &c);
        while (++n < 500 && !all_worked(&c, limit[k]));
        ck_assert_int_eq(atomic_load(&c.done), 400 * n);
        ck_assert_int_eq(all_worked(&c, limit[k]), 1);
        /* one that has not seen the region before begin may do some items of its first loop */
        for (int i = limit[k]; i < 4; i++)
            ck_assert_int_lt(atomic_load(&c.by[i]), 40);
    }
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

enum { MS = 1000000 };

START_TEST(a_thread_that_is_waited_for_leaves)
{
    const int pause[] = { 2, 4, 8, 16, 32, 64, 64 };
    struct backoff l = cb_backoff_none;
    int64_t t = 1000 * (int64_t)MS;
    long lost = 1;

    cb_backoff_judge(&l, lost, t - 3 * MS, t); /* the first one for long: not often */
    ck_assert_int_eq(l.until_ns, 0);
    for (int i = 0; i < 7; i++) { /* 3 ms of work, 3 of waits */
        t += 6 * MS;
        cb_backoff_judge(&l, ++lost, t - 3 * MS, t);
        ck_assert_int_eq(l.until_ns, t + pause[i] * (int64_t)MS);
        t = l.until_ns;
        cb_backoff_back(&l, t);
        ck_assert_int_eq(l.until_ns, 0);
    }
    t += 300 * (int64_t)MS; /* long without: forgotten */
    cb_backoff_judge(&l, ++lost, t - 3 * MS, t);
    ck_assert_int_eq(l.until_ns, 0);
    t += 6 * MS;
    cb_backoff_judge(&l, ++lost, t - 3 * MS, t);
    ck_assert_int_eq(l.until_ns, t + 2 * MS);
}
END_TEST

START_TEST(rare_and_own_waits_do_not_count)
{
    struct backoff l = cb_backoff_none;
    int64_t t = 1000 * (int64_t)MS;

    for (int i = 1; i < 100; i++, t += 30 * MS) { /* a tenth of the time */
        cb_backoff_judge(&l, i, t - 3 * MS, t);
        ck_assert_int_eq(l.until_ns, 0);
    }
    l = cb_backoff_none;
    for (int i = 1; i < 100; i++, t += 4 * MS) { /* half of it, but the core was there */
        cb_backoff_judge(&l, 0, t - 2 * MS, t);
        ck_assert_int_eq(l.until_ns, 0);
    }
}
END_TEST

/* Two nodes made up of the processors that there are: threads 0.. are on the first one. */
static struct par *two_nodes(int n_threads)
{
    struct affinity affinity = { .n_threads = n_threads, .n_node = 2, .binds = 0 };
    struct par *p;

    affinity.node = calloc((size_t)n_threads, sizeof *affinity.node);
    ck_assert_ptr_nonnull(affinity.node);
    for (int i = 0; i < n_threads; i++)
        affinity.node[i] = i * 2 / n_threads;
    ck_assert_int_eq(cb_par_new_at(&affinity, &p), 0);
    ck_assert_int_eq(cb_par_nodes(p), 2);
    return p;
}

START_TEST(nodes_share_items)
{
    struct count c = { .loops = 3000 };

    c.p = two_nodes(_i);
    cb_par_run(c.p, many_loops, &c);
    cb_par_free(c.p);
}
END_TEST

/* More threads than share a ticket: parts of one node, and of two with 40 threads and 3 */
START_TEST(many_threads_have_parts)
{
    struct affinity affinity = { .n_threads = 43, .n_node = 1 + _i };
    struct count c = { .loops = 1000 };

    affinity.node = calloc(43, sizeof *affinity.node);
    ck_assert_ptr_nonnull(affinity.node);
    for (int i = 40; i < 43; i++)
        affinity.node[i] = _i;
    ck_assert_int_eq(cb_par_new_at(&affinity, &c.p), 0);
    cb_par_run(c.p, many_loops, &c);
    cb_par_limit(c.p, 2);
    for (int k = 0; k < MOST; k++)
        atomic_store(&c.done[k], 0);
    cb_par_run(c.p, many_loops, &c);
    cb_par_free(c.p);
}
END_TEST

enum { CROWD = 64, CROWD_ITEMS = 400 };

struct crowd {
    atomic_int met, first[CROWD]; /* of each thread, -1 before */
};

/* Waits until each thread has an item. */
static void meet(void *ctx, int i, int thread)
{
    struct crowd *c = ctx;
    int none = -1;

    if (!atomic_compare_exchange_strong(&c->first[thread], &none, i))
        return;
    atomic_fetch_add(&c->met, 1);
    while (atomic_load(&c->met) < CROWD)
        usleep(1000);
}

/* The threads of a node begin in different parts, so that they do not pass one line around. */
START_TEST(threads_begin_in_their_parts)
{
    struct affinity affinity = { .n_threads = CROWD, .n_node = 2 };
    struct crowd c = { .met = 0 };
    struct par *p;

    affinity.node = calloc(CROWD, sizeof *affinity.node);
    ck_assert_ptr_nonnull(affinity.node);
    for (int i = 0; i < CROWD; i++) {
        affinity.node[i] = i / (CROWD / 2);
        atomic_init(&c.first[i], -1);
    }
    ck_assert_int_eq(cb_par_new_at(&affinity, &p), 0);
    cb_par_for(p, CROWD_ITEMS, meet, &c);
    for (int i = 0; i < CROWD; i++) /* two parts a node */
        ck_assert_int_eq(c.first[i] / (CROWD_ITEMS / 4), i / (CROWD / 4));
    cb_par_free(p);
}
END_TEST

struct order {
    atomic_int n, first[2]; /* of each thread, -1 before */
    atomic_int met;
};

/* Waits for the other thread, so that each has one of the first two items. */
static void note_first(void *ctx, int i, int thread)
{
    struct order *o = ctx;
    int none = -1;

    if (!atomic_compare_exchange_strong(&o->first[thread], &none, i))
        return;
    atomic_fetch_add(&o->met, 1);
    while (atomic_load(&o->met) < 2)
        usleep(100);
}

START_TEST(a_node_takes_its_part_first)
{
    struct order o = { .first = { -1, -1 } };
    struct par *p = two_nodes(2);

    cb_par_for(p, 100, note_first, &o);
    ck_assert_int_eq(o.first[0], 0);
    ck_assert_int_eq(o.first[1], 50);
    cb_par_free(p);
}
END_TEST

/* Logits of a prompt and a decoded token, by threads of one node or of two */
static void run_tiny(int nodes, float *out)
{
    const struct tiny tiny = cb_tiny_get("llama");
    struct cb_model *m = cb_toy_model(&tiny, "cpu", 4);
    struct cb_session *s;
    int32_t ids[600];

    if (nodes == 2) {
        cb_par_free(m->dev->par);
        m->dev->par = two_nodes(4);
    }
    s = cb_toy_session(m, "full", "f16", 0);
    for (int i = 0; i < 600; i++)
        ids[i] = 3 + i * 7 % 50;
    ck_assert(!cb_session_prefill(s, ids, 600, NULL));
    ck_assert(!cb_session_decode(s, 5));
    memcpy(out, cb_session_logits(s), (size_t)m->hp.n_vocab * sizeof *out);
    cb_session_close(s);
    cb_model_close(m);
}

START_TEST(nodes_change_no_result)
{
    static float one[1 << 16], two[1 << 16];

    run_tiny(1, one);
    run_tiny(2, two);
    ck_assert(!memcmp(one, two, sizeof one));
}
END_TEST

static double seconds(int n_threads, float *out)
{
    const struct tiny tiny = cb_tiny_get("llama");
    struct cb_model *m = cb_toy_model(&tiny, "cpu", n_threads);
    double best = 1e9;

    for (int round = 0; round < 5; round++) {
        struct cb_session *s = cb_toy_session(m, "full", "f16", 0);
        const double start = cb_now_s();
        int32_t ids[600];

        for (int i = 0; i < 600; i++)
            ids[i] = 3 + i * 7 % 50;
        ck_assert(!cb_session_prefill(s, ids, 600, NULL));
        for (int i = 0; i < 20; i++)
            ck_assert(!cb_session_decode(s, 5 + i));
        best = cb_now_s() - start < best ? cb_now_s() - start : best;
        memcpy(out, cb_session_logits(s), (size_t)m->hp.n_vocab * sizeof *out);
        cb_session_close(s);
    }
    cb_model_close(m);
    return best;
}

/* The thread sanitizer takes a lock for each atomic number, which threads without a core hold. */
#ifdef __SANITIZE_THREAD__
enum { TIMES_SLOWER = 6 };
#else
enum { TIMES_SLOWER = 2 };
#endif

/* As many threads as are made at most, eight for each processor: the same bits, and less than twice
 * as slow. */
START_TEST(more_threads_than_processors)
{
    static float few[1 << 16], many[1 << 16];
    const int n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    double fast = 0, slow = 1;

    for (int tries = 3; tries && slow >= TIMES_SLOWER * fast + 0.02; tries--) {
        fast = seconds(n, few);
        slow = seconds(8 * n, many);
        printf("%d threads %.1f ms, %d threads %.1f ms\n", n, fast * 1e3, 8 * n, slow * 1e3);
        ck_assert(!memcmp(few, many, sizeof few));
    }
    ck_assert_double_lt(slow, TIMES_SLOWER * fast + 0.02);
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
    tcase_add_test(t, a_limit_lets_threads_sleep);
    tcase_add_test(t, sleeping_threads_wake);
    tcase_add_test(t, a_thread_that_is_waited_for_leaves);
    tcase_add_test(t, rare_and_own_waits_do_not_count);
    tcase_add_loop_test(t, nodes_share_items, 2, 6);
    tcase_add_loop_test(t, many_threads_have_parts, 0, 2);
    tcase_add_test(t, threads_begin_in_their_parts);
    tcase_add_test(t, a_node_takes_its_part_first);
    tcase_add_test(t, nodes_change_no_result);
    tcase_add_test(t, more_threads_than_processors);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
