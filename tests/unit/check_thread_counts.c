/* SPDX-License-Identifier: MIT */
/* check_thread_counts.c - the numbers of threads that made-up machines leave to a measurement. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "kit/folder.h"
#include "kit/suite.h"
#include "par/thread_counts.h"

static const char *root;
static const unsigned char all[16] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };

static void setup(void)
{
    root = cb_folder_make("check_thread_counts");
}

static void put(int cpu, const char *file, const char *text)
{
    char name[64];

    snprintf(name, sizeof name, "cpu%d/%s", cpu, file);
    cb_folder_put(name, text);
}

/* Processors c and c + n_core share a core. */
static void two_threads_a_core(int n_core)
{
    for (int c = 0; c < 2 * n_core; c++) {
        char list[32];
        snprintf(list, sizeof list, "%d,%d\n", c % n_core, c % n_core + n_core);
        put(c, "topology/core_cpus_list", list);
    }
}

static struct thread_counts counts(int n_cpu, const unsigned char *allowed, double quota)
{
    const struct machine m = { root, root, allowed, n_cpu, 0, 0 };
    struct thread_counts c;

    ck_assert_int_eq(cb_thread_counts(&m, quota, &c), 0);
    return c;
}

/* "4 8" */
static const char *text_of(const struct thread_counts *c)
{
    static char text[128];
    int n = 0;

    for (int i = 0; i < c->n; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", i ? " " : "", c->count[i]);
    return text;
}

static void expect(int n_cpu, const unsigned char *allowed, double quota, const char *want,
                   int usual)
{
    const struct thread_counts c = counts(n_cpu, allowed, quota);

    ck_assert_str_eq(text_of(&c), want);
    ck_assert_int_eq(c.usual, usual);
}

START_TEST(equal_cores_leave_no_choice)
{
    expect(8, all, 0, "8", 8);
    expect(8, all, 4, "4", 4); /* whole quotas do not either */
    expect(8, all, 9, "8", 8);
    for (int c = 0; c < 8; c++)
        put(c, "acpi_cppc/highest_perf", c % 2 ? "196\n" : "211\n");
    expect(8, all, 0, "8", 8); /* boost clocks of equal cores */
}
END_TEST

START_TEST(hardware_threads_are_a_choice)
{
    const unsigned char one_each[16] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    const unsigned char some[16] = { 1, 1, 1, 0, 0, 0, 0, 0, 1, 1 };

    two_threads_a_core(8);
    expect(16, all, 0, "8 16", 8);
    expect(16, one_each, 0, "8", 8);
    expect(16, some, 0, "3 5", 3);
    expect(16, all, 12, "8 12", 8);
    expect(16, all, 6, "6", 6);
    expect(16, all, 2.5, "2 3", 3);
    expect(16, all, 0.5, "1", 1);
}
END_TEST

START_TEST(slower_cores_are_a_choice)
{
    static const char *const capacity[16] = { "1024\n", "1024\n", "760\n", "760\n",
                                              "760\n",  "300\n",  "300\n", "300\n" };

    for (int c = 0; c < 8; c++)
        put(c, "cpu_capacity", capacity[c]);
    expect(8, all, 0, "2 5 8", 8);
    expect(5, all, 0, "2 5", 5);
    expect(2, all, 0, "2", 2);
}
END_TEST

/* Two fast cores of two threads each, four slow cores of one */
START_TEST(a_hybrid_of_both)
{
    for (int c = 0; c < 8; c++) {
        char list[16];
        snprintf(list, sizeof list, c < 4 ? "%d-%d\n" : "%d\n", c < 4 ? c / 2 * 2 : c,
                 c / 2 * 2 + 1);
        put(c, "topology/core_cpus_list", list);
        put(c, "acpi_cppc/highest_perf", c < 4 ? "64\n" : "40\n");
    }
    expect(8, all, 0, "2 6 8", 6);
}
END_TEST

START_TEST(nodes_are_a_choice)
{
    two_threads_a_core(8);
    cb_folder_put("node0/cpulist", "0-3,8-11\n");
    cb_folder_put("node1/cpulist", "4-7,12-15\n");
    expect(16, all, 0, "4 8 16", 8);
}
END_TEST

static void describe(int n_cpu, const unsigned char *allowed, double quota, const char *name,
                     char out[512])
{
    const struct machine m = { root, root, allowed, n_cpu, 0, 0 };
    struct buf text = { 0 };

    cb_machine_describe(&m, quota, name, &text);
    ck_assert_int_lt(snprintf(out, 512, "%s", text.s), 512);
    cb_buf_free(&text);
}

START_TEST(descriptions_tell_machines_apart)
{
    const unsigned char some[16] = { 1, 1, 1, 1, 0, 0, 1, 0, 1, 1 };
    char was[512], now[512];

    cb_folder_put("node0/cpulist", "0-7\n");
    describe(16, some, 1.5, "A", was);
    ck_assert_str_eq(was, "A\nprocessors 0-3,6,8-9\nquota 1.500\nnode 0: 0-7\n");
    describe(16, all, 1.5, "A", now);
    ck_assert_str_ne(was, now);
    describe(16, some, 0, "A", now);
    ck_assert_str_ne(was, now);
    describe(16, some, 1.5, "B", now);
    ck_assert_str_ne(was, now);
    cb_folder_put("node1/cpulist", "8-15\n");
    describe(16, some, 1.5, "A", now);
    ck_assert_str_ne(was, now);
}
END_TEST

START_TEST(this_machine_is_described)
{
    struct thread_counts c;
    struct buf key = { 0 };

    ck_assert_int_eq(cb_thread_counts_here(&c, &key), 0);
    ck_assert_int_ge(c.n, 1);
    ck_assert_int_eq(c.usual, cb_cpus_default());
    ck_assert(!key.n || strstr(key.s, "processors "));
    cb_buf_free(&key);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("thread counts");
    TCase *t = tcase_create("thread counts");

    tcase_add_checked_fixture(t, setup, cb_folder_remove);
    tcase_add_test(t, equal_cores_leave_no_choice);
    tcase_add_test(t, hardware_threads_are_a_choice);
    tcase_add_test(t, slower_cores_are_a_choice);
    tcase_add_test(t, a_hybrid_of_both);
    tcase_add_test(t, nodes_are_a_choice);
    tcase_add_test(t, descriptions_tell_machines_apart);
    tcase_add_test(t, this_machine_is_described);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
