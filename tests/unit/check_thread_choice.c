/* SPDX-License-Identifier: MIT */
/* check_thread_choice.c - the default number of threads by pretended speeds: what is chosen and
 * kept; and the timer on this machine. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "bench/thread_choice.h"
#include "kit/folder.h"
#include "kit/suite.h"

static const char *root;

static void setup(void)
{
    root = cb_folder_make("check_thread_choice");
    cb_folder_put("kept/made", "");
}

/* ---- what is chosen and kept ---- */

struct pretend {
    const double (*speed)[2]; /* [n threads] of tokens, of prompts */
    int calls, fails;
    double busy; /* the share of the speed that each second call gets; 0: all */
};

static int timer(void *arg, int n, double seconds, struct thread_speed *out)
{
    struct pretend *p = arg;
    const double part = p->busy > 0 && p->calls % 2 ? p->busy : 1;

    ck_assert(seconds > 0 && seconds < 0.2);
    p->calls++;
    *out = (struct thread_speed){ part * p->speed[n][0], part * p->speed[n][1] };
    return p->fails ? -1 : 0;
}

static const double siblings_help_prompts[17][2] = { [8] = { 100, 100 }, [16] = { 101, 130 } };
static const double siblings_hurt[17][2] = { [8] = { 100, 100 }, [16] = { 80, 90 } };
static const double siblings_help[17][2] = { [8] = { 100, 100 }, [16] = { 110, 120 } };

static struct thread_choice choose(struct pretend *p, const char *key, const char *folder)
{
    const struct thread_counts c = { .n = 2, .count = { 8, 16 }, .usual = 8 };
    struct thread_choice out;

    cb_thread_choose(&c, key, folder, timer, p, &out);
    return out;
}

static const char *kept(void)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/kept", root);
    return path;
}

static void is_choice(struct thread_choice c, int token, int prompt, enum thread_origin origin)
{
    ck_assert_int_eq(c.token, token);
    ck_assert_int_eq(c.prompt, prompt);
    ck_assert_int_eq(c.origin, origin);
}

START_TEST(the_fewest_of_the_fastest)
{
    struct pretend p = { .speed = siblings_help_prompts };

    is_choice(choose(&p, "a", NULL), 8, 16, THREADS_MEASURED); /* 1% more is not worth them */
    p.speed = siblings_hurt;
    is_choice(choose(&p, "a", NULL), 8, 8, THREADS_MEASURED);
    p.speed = siblings_help;
    is_choice(choose(&p, "a", NULL), 16, 16, THREADS_MEASURED);
}
END_TEST

START_TEST(measured_once_a_machine)
{
    struct pretend p = { .speed = siblings_help };
    struct thread_choice c = choose(&p, "a", kept());
    const int calls = p.calls;

    is_choice(c, 16, 16, THREADS_MEASURED);
    ck_assert(!c.unkept && calls > 0);
    ck_assert_int_eq(c.n, 2);
    ck_assert(c.speed[1].token == 110 && c.speed[1].prompt == 120);
    p.speed = siblings_hurt;
    is_choice(choose(&p, "a", kept()), 16, 16, THREADS_KEPT);
    ck_assert_int_eq(p.calls, calls);
    is_choice(choose(&p, "b", kept()), 8, 8, THREADS_MEASURED);
    ck_assert_int_eq(p.calls, 2 * calls);
    is_choice(choose(&p, "a", kept()), 16, 16, THREADS_KEPT);
}
END_TEST

START_TEST(no_choice_measures_nothing)
{
    struct pretend p = { .speed = siblings_help };
    const struct thread_counts c = { .n = 1, .count = { 8 }, .usual = 8 };
    struct thread_choice out;

    cb_thread_choose(&c, "a", kept(), timer, &p, &out);
    is_choice(out, 8, 8, THREADS_GIVEN);
    ck_assert_int_eq(p.calls, 0);
    ck_assert_int_eq(out.n, 0);
}
END_TEST

/* The only file in the folder beside "made" */
static const char *kept_file(void)
{
    static char path[1024];
    DIR *d = opendir(kept());
    struct dirent *e;

    ck_assert_ptr_nonnull(d);
    *path = '\0';
    while ((e = readdir(d)))
        if (strstr(e->d_name, ".json"))
            snprintf(path, sizeof path, "%s/%s", kept(), e->d_name);
    closedir(d);
    ck_assert(*path);
    return path;
}

static void overwrite(const char *path, const char *s, size_t n)
{
    FILE *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(s, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

/* Whatever a file says, the number is one of those that were compared. */
START_TEST(damaged_files_are_measured_again)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "null",
        "{\"version\": 1, \"machine\": \"a\", \"speeds\": []}",
        "{\"version\": 1, \"machine\": \"b\", \"speeds\": [{\"threads\": 8, \"token\": 1, "
        "\"prompt\": 1}, {\"threads\": 16, \"token\": 9, \"prompt\": 9}]}",
        "{\"version\": 1, \"machine\": \"a\", \"speeds\": [{\"threads\": 8, \"token\": 1, "
        "\"prompt\": 1}, {\"threads\": 4000, \"token\": 9, \"prompt\": 9}]}",
        "{\"version\": 1, \"machine\": \"a\", \"speeds\": [{\"threads\": 8, \"token\": 1, "
        "\"prompt\": 1}, {\"threads\": 16, \"token\": -9, \"prompt\": 9}]}",
        "{\"version\": 1, \"machine\": \"a\", \"speeds\": [{\"threads\": 8, \"token\": 1}, "
        "{\"threads\": 16, \"token\": 9, \"prompt\": 9}]}",
        "{\"version\": 2, \"machine\": \"a\", \"speeds\": [{\"threads\": 8, \"token\": 1, "
        "\"prompt\": 1}, {\"threads\": 16, \"token\": 9, \"prompt\": 9}]}",
    };
    struct pretend p = { .speed = siblings_hurt };
    struct buf good = { 0 };

    (void)choose(&p, "a", kept());
    ck_assert_int_eq(cb_file_read_path(kept_file(), &good), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        overwrite(kept_file(), bad[i], strlen(bad[i]));
        is_choice(choose(&p, "a", kept()), 8, 8, THREADS_MEASURED);
        is_choice(choose(&p, "a", kept()), 8, 8, THREADS_KEPT);
    }
    for (size_t n = 0; n < good.n; n += 7) {
        overwrite(kept_file(), good.s, n);
        is_choice(choose(&p, "a", kept()), 8, 8, THREADS_MEASURED);
    }
    cb_buf_free(&good);
}
END_TEST

START_TEST(a_folder_that_cannot_be_written)
{
    struct pretend p = { .speed = siblings_help };
    struct thread_choice c = choose(&p, "a", "/no/such/folder");

    is_choice(c, 16, 16, THREADS_MEASURED);
    ck_assert(c.unkept);
    c = choose(&p, "a", cb_folder_put("a-file", "x"));
    is_choice(c, 16, 16, THREADS_MEASURED);
    ck_assert(c.unkept);
}
END_TEST

START_TEST(what_fails_or_wavers_is_not_kept)
{
    struct pretend p = { .speed = siblings_help, .fails = 1 };
    static const double none[17][2] = { [8] = { 1, 1 } };
    static const double three_speeds[17][2] = {
        [4] = { 60, 60 }, [8] = { 100, 100 }, [16] = { 90, 90 }
    };
    const struct thread_counts three = { .n = 3, .count = { 4, 8, 16 }, .usual = 8 };
    struct thread_choice out;

    is_choice(choose(&p, "a", kept()), 8, 8, THREADS_UNSURE);
    p = (struct pretend){ .speed = none };
    is_choice(choose(&p, "a", kept()), 8, 8, THREADS_UNSURE);
    /* Three numbers, so that a busy moment meets another one in each round */
    p = (struct pretend){ .speed = three_speeds, .busy = 0.3 };
    cb_thread_choose(&three, "a", kept(), timer, &p, &out);
    is_choice(out, 8, 8, THREADS_UNSURE);
    ck_assert_int_eq(out.n, 0);
    p.busy = 0.95;
    cb_thread_choose(&three, "a", kept(), timer, &p, &out);
    is_choice(out, 8, 8, THREADS_MEASURED);
}
END_TEST

/* A quota's period is met as a whole. */
START_TEST(quotas_are_measured_for_longer)
{
    static const double speed[17][2] = { [2] = { 10, 20 }, [3] = { 10.1, 25 } };
    struct pretend p = { .speed = speed };
    const struct thread_counts c = { .n = 2, .count = { 2, 3 }, .usual = 3, .quota = 2.5 };
    struct thread_choice out;

    cb_thread_choose(&c, "a", NULL, timer, &p, &out);
    is_choice(out, 2, 3, THREADS_MEASURED);
    ck_assert_int_eq(p.calls, 2);
}
END_TEST

/* ---- this machine ---- */

START_TEST(the_timer_is_quick)
{
    struct thread_bench bench = { .most = 2, .most_bytes = 64 << 20 };
    const double start = cb_now_s();

    for (int n = 1; n <= 2; n++) {
        struct thread_speed s = { 0, 0 };
        ck_assert_int_eq(cb_thread_bench_time(&bench, n, 0.015, &s), 0);
        ck_assert(s.token > 0 && s.prompt > 0);
    }
    ck_assert(cb_now_s() - start < 10); /* loaded machines and sanitizers included */
    cb_thread_bench_close(&bench);
    cb_thread_bench_close(&bench);
}
END_TEST

START_TEST(a_refused_tier_leaves_the_usual_number)
{
    const struct thread_counts c = { .n = 2, .count = { 1, 2 }, .usual = 2 };
    struct thread_bench bench = { .most = 2, .isa = "none such" };
    struct thread_choice out;

    cb_thread_choose(&c, "a", kept(), cb_thread_bench_time, &bench, &out);
    is_choice(out, 2, 2, THREADS_UNSURE);
    cb_thread_bench_close(&bench);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("thread choice");
    TCase *t = tcase_create("thread choice");

    tcase_add_checked_fixture(t, setup, cb_folder_remove);
    tcase_add_test(t, the_fewest_of_the_fastest);
    tcase_add_test(t, measured_once_a_machine);
    tcase_add_test(t, no_choice_measures_nothing);
    tcase_add_test(t, damaged_files_are_measured_again);
    tcase_add_test(t, a_folder_that_cannot_be_written);
    tcase_add_test(t, what_fails_or_wavers_is_not_kept);
    tcase_add_test(t, quotas_are_measured_for_longer);
    tcase_add_test(t, the_timer_is_quick);
    tcase_add_test(t, a_refused_tier_leaves_the_usual_number);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
