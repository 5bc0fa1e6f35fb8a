/* SPDX-License-Identifier: MIT */
/* suite.h - runs a suite and tells tests that were skipped from those that passed. */
#ifndef SUITE_H
#define SUITE_H

#include <check.h>

enum { CB_SKIPPED = 77 }; /* the exit status by which automake knows a skipped program */

/* Rounds of random tests are divided by this, because sanitizers make a round take ten times as
 * long. gcc tells of them with macros, clang as features. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ ||                                 \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { CB_SLOWED = 4 };
#else
enum { CB_SLOWED = 1 };
#endif

/* Call at most once in a test that returns because this machine lacks what it needs. Prints
 * "skipped: WHY", which tests/tally counts. */
void cb_skip(const char *format, ...) CK_ATTRIBUTE_FORMAT(printf, 1, 2);

/* 1: CTXBANK_TEST_BRIEF is set, so cases that take long by themselves are left out */
int cb_test_brief(void);

/* CTXBANK_TEST_SAMPLE=K/N: a loop over more than SAMPLE_ALL cases runs one in N of them. Which ones
 * depends on K and on the test's name, so that tests which loop over one table take different rows;
 * K of 1..N together run all. Loops over the tiers of instructions are short enough to run whole.
 */
enum { SAMPLE_ALL = 8 };
void cb_add_cases(TCase *c, const TTest *test, int from, int to);
#undef tcase_add_loop_test
#define tcase_add_loop_test(c, test, from, to) cb_add_cases(c, test, from, to)
/* The same for loops within a test: how many of n random cases it makes, and N itself */
int cb_test_cases(int n);
int cb_test_nth(void);

/* libcheck writes to a file at each assertion that passed, so that it can say where a test crashed;
 * loops pass millions. This notes the place, and a handler of signals writes it. */
void cb_mark_point(const char *file, int line);
#define _mark_point(file, line) cb_mark_point(file, line)

/* A call of the library that must succeed; the message is its reason. */
#define ck_assert_ok(status) ck_assert_msg(!(status), "%s", cb_error())

/* Runs the suite and frees it. Returns the program's exit status: CB_SKIPPED if every test was
 * skipped. nofork: one process, for tests that need the time or memory */
int cb_suite_run(Suite *s);
int cb_suite_run_nofork(Suite *s);

#endif
