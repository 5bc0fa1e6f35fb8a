/* SPDX-License-Identifier: MIT */
/* suite.c - runs a suite. Tests are processes of their own: they count in shared memory. */
#include "suite.h"

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
