/* SPDX-License-Identifier: MIT */
/* check_affinity.c - threads dealt to nodes and cores of made-up machines, and to those of this
 * one. */
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kit/folder.h"
#include "kit/suite.h"
#include "par/affinity.h"
#include "par/cpus.h"
#include "par/par.h"

static const char *root;

/* Eight cores of two threads each (c and c + 8), four on each of nodes 0 and 2 */
static void setup(void)
{
    root = cb_folder_make("check_place");
    for (int c = 0; c < 16; c++) {
        char file[64], list[32];
        snprintf(file, sizeof file, "cpu%d/topology/core_cpus_list", c);
        snprintf(list, sizeof list, "%d,%d\n", c % 8, c % 8 + 8);
        cb_folder_put(file, list);
    }
    cb_folder_put("node0/cpulist", "0-3,8-11\n");
    cb_folder_put("node2/cpulist", "4-7,12-15\n");
}

static struct affinity make(struct team_params t, const unsigned char *allowed, int here, int most)
{
    const struct machine m = { root, root, allowed, 16, here, most };
    struct affinity p;

    ck_assert_int_eq(cb_affinity_new(&m, &t, &p), 0);
    return p;
}

static const unsigned char all[16] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };

/* "0 1 8 9" of a thread */
static const char *cpus(const struct affinity *p, int thread)
{
    static char text[128];
    int n = 0;

    *text = '\0';
    for (int i = 0; i < p->n_cpu[thread]; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", i ? " " : "", p->cpu[thread][i]);
    return text;
}

START_TEST(distribute_takes_all_nodes)
{
    struct affinity p = make((struct team_params){ 0, NUMA_DISTRIBUTE, 0 }, all, 5, 0);

    ck_assert_int_eq(p.n_threads, 8); /* cores */
    ck_assert_int_eq(p.n_node, 2);
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(p.node[i], i / 4);
        ck_assert_str_eq(cpus(&p, i), i < 4 ? "0 1 2 3 8 9 10 11" : "4 5 6 7 12 13 14 15");
    }
    ck_assert_str_eq(p.note, "numa distribute: 8 threads on 2 nodes");
    cb_affinity_free(&p);
    p = make((struct team_params){ 3, NUMA_DISTRIBUTE, 1 }, all, 0, 0);
    ck_assert_int_eq(p.n_threads, 3);
    ck_assert_str_eq(cpus(&p, 0), "0");
    ck_assert_str_eq(cpus(&p, 1), "1");
    ck_assert_str_eq(cpus(&p, 2), "4");
    cb_affinity_free(&p);
    p = make((struct team_params){ 1, NUMA_DISTRIBUTE, 0 }, all, 0, 0);
    ck_assert_int_eq(p.n_node, 1);
    cb_affinity_free(&p);
}
END_TEST

START_TEST(isolate_stays_at_home)
{
    struct affinity p = make((struct team_params){ 0, NUMA_ISOLATE, 0 }, all, 13, 0);

    ck_assert_int_eq(p.n_threads, 4);
    ck_assert_int_eq(p.n_node, 1);
    ck_assert_str_eq(cpus(&p, 3), "4 5 6 7 12 13 14 15");
    ck_assert_str_eq(p.note, "numa isolate: 4 threads on one of 2 nodes");
    cb_affinity_free(&p);
}
END_TEST

START_TEST(affinity_and_quota_bind)
{
    const unsigned char some[16] = { 0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0 };
    const unsigned char upper[16] = { 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0 };
    struct affinity p = make((struct team_params){ 0, NUMA_DISTRIBUTE, 0 }, some, 1, 0);

    ck_assert_int_eq(p.n_threads, 3);
    ck_assert_str_eq(cpus(&p, 0), "1 9");
    ck_assert_str_eq(cpus(&p, 2), "5 6 14");
    cb_affinity_free(&p);
    p = make((struct team_params){ 0, NUMA_DISTRIBUTE, 0 }, some, 1, 2);
    ck_assert_int_eq(p.n_threads, 2);
    cb_affinity_free(&p);
    p = make((struct team_params){ 0, NUMA_DISTRIBUTE, 0 }, upper, 4, 0);
    ck_assert_int_eq(p.n_node, 1); /* the other one is not ours */
    ck_assert_int_eq(p.binds, 0);
    ck_assert_str_eq(p.note, "numa distribute: the machine has one node, nothing to do");
    cb_affinity_free(&p);
}
END_TEST

START_TEST(pinned_threads_go_round_the_cores)
{
    struct affinity p = make((struct team_params){ 10, NUMA_OFF, 1 }, all, 0, 0);

    ck_assert_int_eq(p.n_node, 1);
    for (int i = 0; i < 10; i++) {
        char want[8];
        snprintf(want, sizeof want, "%d", i % 8);
        ck_assert_str_eq(cpus(&p, i), want);
    }
    cb_affinity_free(&p);
}
END_TEST

static void where(void *ctx, int i, int thread)
{
    cpu_set_t set;
    int *n = ctx;

    (void)i;
    if (!sched_getaffinity(0, sizeof set, &set))
        n[thread] = CPU_COUNT(&set);
}

static void two_items(void *ctx)
{
    struct par *p = ((struct par **)ctx)[0];
    cb_par_for(p, 1, where, ((void **)ctx)[1]);
}

START_TEST(the_caller_is_pinned_and_let_go)
{
    const struct team_params t = { .n_threads = 2, .pin = 1 };
    int n[2] = { 0, 0 };
    struct par *p;
    cpu_set_t was, now;

    ck_assert(!sched_getaffinity(0, sizeof was, &was));
    ck_assert_int_eq(cb_par_new_team(&t, &p), 0);
    cb_par_run(p, two_items, (void *[]){ p, n });
    ck_assert_int_eq(n[0], 1);
    cb_par_free(p);
    ck_assert(!sched_getaffinity(0, sizeof now, &now));
    ck_assert(CPU_EQUAL(&was, &now));
}
END_TEST

START_TEST(off_asks_for_nothing)
{
    const struct team_params t = { 0, NUMA_OFF, 0 };
    struct affinity p;

    ck_assert_int_eq(cb_affinity_here(&t, &p), 0);
    ck_assert_int_eq(p.n_threads, cb_cpus_default());
    ck_assert_int_eq(p.binds, 0);
    ck_assert_str_eq(p.note, "");
    cb_affinity_free(&p);
    ck_assert_int_eq(cb_numa_mode("isolate"), NUMA_ISOLATE);
    ck_assert_int_eq(cb_numa_mode(NULL), NUMA_OFF);
    ck_assert_int_eq(cb_numa_mode("numactl"), -1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("place");
    TCase *t = tcase_create("place");

    tcase_add_checked_fixture(t, setup, cb_folder_remove);
    tcase_add_test(t, distribute_takes_all_nodes);
    tcase_add_test(t, isolate_stays_at_home);
    tcase_add_test(t, affinity_and_quota_bind);
    tcase_add_test(t, pinned_threads_go_round_the_cores);
    tcase_add_test(t, the_caller_is_pinned_and_let_go);
    tcase_add_test(t, off_asks_for_nothing);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
