/* SPDX-License-Identifier: MIT */
/* check_team.c - threads of our own: made when a team is, named, deaf to signals, asleep between
 * regions, gone with it; refused ones are an error; a child of fork() goes on alone. */
#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctxbank.h"
#include "device/device.h"
#include "kit/asleep.h"
#include "kit/inside.h"
#include "kit/suite.h"
#include "par/par.h"

enum { MOST_TASK = 64, NOBODY = 65534 };

struct task {
    char comm[64];
    int tid;
    unsigned long long blocked; /* signals, bit 0 is number 1 */
};

static void read_task(const char *id, struct task *t)
{
    char path[300], line[256];
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%s/status", id);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "Name: %63s", t->comm);
        sscanf(line, "Pid: %d", &t->tid);
        sscanf(line, "SigBlk: %llx", &t->blocked);
    }
    if (f)
        fclose(f);
}

/* Threads of this process that are ours by name */
static int tasks(struct task *t)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *e;
    int n = 0;

    ck_assert_ptr_nonnull(dir);
    while ((e = readdir(dir)) && n < MOST_TASK) {
        memset(&t[n], 0, sizeof t[n]);
        if (*e->d_name != '.')
            read_task(e->d_name, &t[n]);
        n += !strncmp(t[n].comm, "ctxbank-", 8);
    }
    closedir(dir);
    return n;
}

static int has_named(const struct task *t, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(t[i].comm, name))
            return 1;
    return 0;
}

/* Until there are this many of them and each has begun: at first the C library blocks all signals,
 * and the system knows a thread that has ended for a moment longer. */
static int wait_for(int want, struct task *t)
{
    for (;; usleep(1000)) {
        const int n = tasks(t);
        int begun = 0;
        for (int k = 0; k < n; k++)
            begun += !(t[k].blocked >> (SIGSEGV - 1) & 1);
        if (n == want && begun == n)
            return n;
    }
}

START_TEST(threads_live_with_the_team)
{
    struct task t[MOST_TASK];
    struct par *p;
    int n;

    ck_assert_int_eq(tasks(t), 0);
    ck_assert_int_eq(cb_par_new(4, &p), 0);
    n = wait_for(3, t);
    ck_assert_int_eq(n, 3);
    ck_assert(has_named(t, n, "ctxbank-1") && has_named(t, n, "ctxbank-3"));
    for (int i = 0; i < n; i++) {
        ck_assert(t[i].blocked >> (SIGINT - 1) & 1);
        ck_assert(t[i].blocked >> (SIGALRM - 1) & 1);
        ck_assert(!(t[i].blocked >> (SIGSEGV - 1) & 1)); /* a crash is reported as ever */
    }
    cb_par_free(p);
    ck_assert_int_eq(wait_for(0, t), 0);
}
END_TEST

static void count(void *ctx, int i, int thread)
{
    (void)i, (void)thread;
    atomic_fetch_add((atomic_int *)ctx, 1);
}

/* Threads that spin never sleep: then this ends with the test's time. */
START_TEST(idle_threads_sleep)
{
    struct task t[MOST_TASK];
    atomic_int n = 0;
    struct par *p;
    int asleep;

    ck_assert_int_eq(cb_par_new(4, &p), 0);
    cb_par_for(p, 100, count, &n);
    ck_assert_int_eq(wait_for(3, t), 3);
    do { /* one may wait for a moment before it has seen that there is nothing to do */
        for (int i = 0; i < 3; i++)
            cb_until_asleep(t[i].tid);
        asleep = 0;
        for (int i = 0; i < 3; i++)
            asleep += cb_asleep(t[i].tid);
    } while (asleep < 3);
    cb_par_for(p, 100, count, &n);
    ck_assert_int_eq(n, 200);
    cb_par_free(p);
}
END_TEST

/* A user that is not root may have few processes: in a child, which loses its rights. */
static void refused_child(void)
{
    const struct rlimit few = { 4, 4 };
    struct task t[MOST_TASK];
    struct device *d = NULL;
    struct par *p = NULL;

    if (!geteuid() && (setgid(NOBODY) || setuid(NOBODY)))
        _exit(2);
    if (setrlimit(RLIMIT_NPROC, &few))
        _exit(3);
    if (cb_par_new(8, &p) != CB_ENOMEM || p)
        _exit(4);
    if (strncmp(cb_error(), "threads: the system refuses 8 (", 31))
        _exit(5);
    if (wait_for(0, t)) /* those that were made before */
        _exit(6);
    if (cb_device_open("cpu", 8, &d) != CB_ENOMEM || d)
        _exit(7);
    if (cb_par_new(1, &p)) /* one thread needs no other */
        _exit(8);
    cb_par_free(p);
    _exit(0);
}

START_TEST(refused_threads_are_an_error)
{
    const pid_t child = fork();
    int status;

    ck_assert_int_ge(child, 0);
    if (!child)
        refused_child();
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", (unsigned)status);
}
END_TEST

START_TEST(a_child_goes_on_alone)
{
    atomic_int n = 0;
    struct par *p;
    pid_t child;
    int status;

    ck_assert_int_eq(cb_par_new(4, &p), 0);
    cb_par_for(p, 100, count, &n);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
        cb_par_for(p, 100, count, &n);
        cb_par_free(p);
        _exit(n == 200 ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", (unsigned)status);
    cb_par_for(p, 100, count, &n);
    ck_assert_int_eq(n, 200);
    cb_par_free(p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("team");
    TCase *t = tcase_create("threads of our own");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, threads_live_with_the_team);
    tcase_add_test(t, idle_threads_sleep);
    tcase_add_test(t, refused_threads_are_an_error);
    tcase_add_test(t, a_child_goes_on_alone);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
