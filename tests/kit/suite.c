/* SPDX-License-Identifier: MIT */
/* suite.c - runs a suite. Tests are processes of their own: they count in shared memory. */
#include "suite.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static atomic_int *n_skipped;

void cb_skip(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    fputs("skipped: ", stdout);
    vprintf(format, ap);
    putchar('\n');
    va_end(ap);
    fflush(stdout);
    atomic_fetch_add(n_skipped, 1);
}

int cb_test_brief(void)
{
    return getenv("CTXBANK_TEST_BRIEF") != NULL;
}

/* CTXBANK_TEST_SAMPLE -> *k of *n; without it 1 of 1 */
static void sample(int *k, int *n)
{
    const char *text = getenv("CTXBANK_TEST_SAMPLE");

    *k = *n = 1;
    if (text && (sscanf(text, "%d/%d", k, n) != 2 || *k < 1 || *k > *n)) {
        fprintf(stderr, "CTXBANK_TEST_SAMPLE=%s is not K/N\n", text);
        exit(EXIT_FAILURE);
    }
}

void cb_add_cases(TCase *c, const TTest *test, int from, int to)
{
    int k, n;

    sample(&k, &n);
    for (const char *s = test->name; *s; s++)
        k += (unsigned char)*s;
    if (to - from <= SAMPLE_ALL)
        n = 1;
    for (int i = from + k % n; i < to; i += n)
        _tcase_add_test(c, test, 0, 0, i, i + 1);
}

int cb_test_cases(int n)
{
    const int nth = cb_test_nth();

    return n <= SAMPLE_ALL ? n : (n + nth - 1) / nth;
}

int cb_test_nth(void)
{
    int k, n;

    sample(&k, &n);
    return n;
}

/* ---- the last assertion that passed ---- */

enum { WRITTEN = 64, THEN = 4096 }; /* the first ones, and then one in this many */

static _Atomic(const char *) mark_file;
static atomic_int mark_line;
static atomic_uint n_marks;

static void write_mark(int signal)
{
    (_mark_point)(atomic_load(&mark_file), atomic_load(&mark_line));
    raise(signal); /* once more: this handler is gone */
}

/* Where a sanitizer handles the signal already, it says more. */
static void catch_crashes(void)
{
    static const int crash[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
    const struct sigaction ours = { .sa_handler = write_mark, .sa_flags = (int)SA_RESETHAND };
    struct sigaction had;

    for (size_t i = 0; i < sizeof crash / sizeof *crash; i++)
        if (!sigaction(crash[i], NULL, &had) && had.sa_handler == SIG_DFL)
            sigaction(crash[i], &ours, NULL);
}

void cb_mark_point(const char *file, int line)
{
    const unsigned n = atomic_fetch_add_explicit(&n_marks, 1, memory_order_relaxed);

    atomic_store_explicit(&mark_file, file, memory_order_relaxed);
    atomic_store_explicit(&mark_line, line, memory_order_relaxed);
    if (!n)
        catch_crashes();
    if (n < WRITTEN || n % THEN == 0)
        (_mark_point)(file, line);
}

static int run(Suite *s, enum fork_status fork)
{
    SRunner *r = srunner_create(s);
    int failed, all_skipped;

    n_skipped =
        mmap(NULL, sizeof *n_skipped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (n_skipped == MAP_FAILED)
        abort();
    srunner_set_fork_status(r, fork);
    fflush(NULL);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    all_skipped = atomic_load(n_skipped) == srunner_ntests_run(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : all_skipped ? CB_SKIPPED : EXIT_SUCCESS;
}

int cb_suite_run(Suite *s)
{
    return run(s, CK_FORK_GETENV);
}

int cb_suite_run_nofork(Suite *s)
{
    return run(s, CK_NOFORK);
}
