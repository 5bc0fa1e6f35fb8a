/* SPDX-License-Identifier: MIT */
/* check_fork.c - a fork goes on as its original would, and neither reaches the other; what is left
 * of a timeline that was cut short is as if the rest had never come. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_PROMPT = 150, N_STEP = 12, N_CTX = 512 };

static cb_model *m;
static int32_t ids[N_CTX];

static void setup(void)
{
    struct tiny t = cb_tiny_get("qwen2");
    uint32_t x = 7;

    m = cb_toy_model(&t, "cpu", 2);
    for (int i = 0; i < N_CTX; i++) {
        x = 1103515245u * x + 12345u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)cb_n_vocab(m));
    }
}

static void teardown(void)
{
    cb_model_close(m);
}

static cb_session *open_row(const struct setting *r)
{
    return cb_setting_session(m, r, N_CTX);
}

static void prefill(cb_session *s, int from, int n)
{
    ck_assert_ok(cb_session_prefill(s, ids + from, n, NULL));
}

/* Tokens from..to-1 of a list that `salt` makes another one */
static void steps(cb_session *s, int from, int to, int salt)
{
    for (int i = from; i < to; i++)
        ck_assert_ok(cb_session_decode(s, ids[(i + salt) % N_CTX]));
}

static void same_logits(const cb_session *a, const cb_session *b, const char *what)
{
    const size_t n = (size_t)cb_n_vocab(m);

    ck_assert_msg(!memcmp(cb_session_logits(a), cb_session_logits(b), n * sizeof(float)), "%s",
                  what);
}

static void same_sessions(const cb_session *a, const cb_session *b, const char *what)
{
    struct cb_memory x, y;

    same_logits(a, b, what);
    cb_session_memory(a, &x);
    cb_session_memory(b, &y);
    ck_assert_msg(x.kv_bytes == y.kv_bytes && x.kept_min == y.kept_min && x.kept_max == y.kept_max,
                  "%s: %llu and %llu bytes", what, (unsigned long long)x.kv_bytes,
                  (unsigned long long)y.kv_bytes);
    ck_assert_int_eq(cb_session_len(a), cb_session_len(b));
}

/* After a prompt, after generated tokens, after a second prompt */
START_TEST(forks_go_on_alone)
{
    const struct setting *r = &cb_setting[_i];

    for (int when = 0; when < 3; when++) {
        cb_session *plain = open_row(r), *s = open_row(r), *fork;
        for (int i = 0; i < 2; i++) {
            cb_session *x = i ? s : plain;
            prefill(x, 0, N_PROMPT);
            if (when > 0)
                steps(x, N_PROMPT, N_PROMPT + N_STEP, 0);
            if (when > 1)
                prefill(x, 200, 40);
        }
        ck_assert_msg(!cb_session_fork(s, &fork), "%s: %s", r->policy, cb_error());
        same_sessions(s, fork, r->policy);
        steps(fork, 300, 300 + N_STEP, 1); /* another text */
        prefill(fork, 20, 30);
        steps(s, 300, 300 + N_STEP, 0);
        steps(plain, 300, 300 + N_STEP, 0);
        same_sessions(s, plain, r->policy);
        cb_session_close(fork);
        ck_assert_int_eq(cb_session_fork(s, &fork), CB_OK);
        steps(fork, 330, 330 + N_STEP, 0);
        steps(plain, 330, 330 + N_STEP, 0);
        same_sessions(fork, plain, r->policy);
        cb_session_close(s); /* the fork needs it no more */
        prefill(fork, 60, 70);
        prefill(plain, 60, 70);
        steps(fork, 350, 350 + N_STEP, 0);
        steps(plain, 350, 350 + N_STEP, 0);
        same_sessions(fork, plain, r->policy);
        cb_session_close(fork);
        cb_session_close(plain);
    }
}
END_TEST

/* Areas of this process that show a file in memory -> *files: in how many files they lie */
static int n_shown(int *files)
{
    FILE *f = fopen("/proc/self/maps", "r");
    unsigned long file[16];
    char line[512];
    int n = 0;

    ck_assert_ptr_nonnull(f);
    for (*files = 0; fgets(line, sizeof line, f);) {
        unsigned long inode;
        int i = 0;
        if (!strstr(line, "memfd:ctxbank"))
            continue;
        ck_assert_int_eq(sscanf(line, "%*s %*s %*s %*s %lu", &inode), 1);
        while (i < *files && file[i] != inode)
            i++;
        if (i == *files && i < 16)
            file[(*files)++] = inode;
        n++;
    }
    fclose(f);
    return n;
}

/* Forks, and forks of forks, show the rows of one snapshot, although the sessions go on, as long as
 * it has most of them. */
START_TEST(forks_share_pages)
{
    cb_session *s = open_row(&cb_setting[0]), *fork[5];
    int n, files;

    prefill(s, 0, 220);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(cb_session_fork(s, &fork[i]), CB_OK);
    n = n_shown(&files);
    ck_assert_int_gt(n, 0);
    steps(fork[0], 220, 264, 0); /* prepacks another block */
    steps(s, 220, 264, 0);
    ck_assert_int_eq(cb_session_fork(s, &fork[2]), CB_OK);
    ck_assert_int_eq(cb_session_fork(fork[0], &fork[3]), CB_OK);
    ck_assert_int_eq(n_shown(&files), 2 * n);
    ck_assert_int_eq(files, 1);
    steps(fork[1], 220, 264, 0); /* what the others wrote is not seen */
    for (int i = 1; i < 4; i++)
        same_sessions(fork[0], fork[i], "forks");
    prefill(s, 264, 200); /* more than is shared */
    ck_assert_int_eq(cb_session_fork(s, &fork[4]), CB_OK);
    n_shown(&files);
    ck_assert_int_eq(files, 2);
    for (int i = 0; i < 3; i++)
        prefill(fork[i], 264, 200);
    steps(s, 464, 470, 0);
    for (int i = 0; i < 5; i++) {
        if (i == 3)
            continue;
        steps(fork[i], 464, 470, 0);
        same_sessions(s, fork[i], "forks that go on");
    }
    cb_session_close(s);
    for (int i = 0; i < 5; i++)
        cb_session_close(fork[i]);
    ck_assert_int_eq(n_shown(&files), 0);
}
END_TEST

/* A session that shares its rows, has gone on and was cut: within a prepacked block, which is
 * unpacked then, and before what is shared. Its forks are like itself. */
START_TEST(forks_of_a_cut_session)
{
    static const int cut[] = { 262, 200, 128, 100 };

    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 4; i++) {
            cb_session *s = open_row(&cb_setting[k]), *other, *fork,
                       *plain = open_row(&cb_setting[k]);
            prefill(s, 0, 220);
            prefill(plain, 0, 220);
            ck_assert_int_eq(cb_session_fork(s, &other), CB_OK);
            steps(s, 220, 264, 0);
            ck_assert_int_eq(cb_session_truncate(s, cut[i]), CB_OK);
            ck_assert_int_eq(cb_session_fork(s, &fork), CB_OK);
            steps(s, 300, 330, 0);
            steps(fork, 300, 330, 0);
            same_sessions(s, fork, cb_setting[k].policy);
            steps(other, 300, 330, 0);
            steps(plain, 300, 330, 0);
            same_sessions(other, plain, cb_setting[k].policy);
            cb_session_close(s);
            cb_session_close(other);
            cb_session_close(fork);
            cb_session_close(plain);
        }
}
END_TEST

START_TEST(an_empty_session_forks)
{
    cb_session *s = open_row(&cb_setting[0]), *fork;

    ck_assert_int_eq(cb_session_fork(s, &fork), CB_OK);
    ck_assert_int_eq(cb_session_len(fork), 0);
    prefill(s, 0, 20);
    prefill(fork, 0, 20);
    same_sessions(s, fork, "empty");
    cb_session_close(s);
    cb_session_close(fork);
}
END_TEST

/* Cut back to `n` tokens; then both go on. plain was fed as many. */
static void cut_and_go_on(const struct setting *r, cb_session *s, cb_session *plain, int n)
{
    ck_assert_msg(!cb_session_truncate(s, n), "%s: %s", r->policy, cb_error());
    ck_assert_int_eq(cb_session_len(s), n);
    steps(s, 300, 300 + N_STEP, 0);
    steps(plain, 300, 300 + N_STEP, 0);
    if (r->keeps == 1)
        same_sessions(s, plain, r->policy); /* kivi: what was quantised stays so */
    ck_assert_int_eq(cb_session_len(s), cb_session_len(plain));
}

START_TEST(cut_timelines)
{
    const struct setting *r = &cb_setting[_i];
    cb_session *s = open_row(r), *plain = open_row(r);

    prefill(s, 0, N_PROMPT);
    prefill(plain, 0, N_PROMPT);
    steps(s, N_PROMPT, N_PROMPT + 4, 0);
    steps(plain, N_PROMPT, N_PROMPT + 4, 0);
    steps(s, N_PROMPT + 4, N_PROMPT + N_STEP, 0);
    if (r->keeps > 0) {
        cut_and_go_on(r, s, plain, N_PROMPT + 4);
    } else {
        const int rc = cb_session_truncate(s, N_PROMPT + 4);
        if (rc) {
            ck_assert_int_eq(rc, CB_EUNSUPPORTED);
            ck_assert_msg(strstr(cb_error(), "policy") != NULL, "%s", cb_error());
        } else {
            ck_assert_int_lt(r->keeps, 0);
        }
    }
    /* its whole length, and nothing, are possible in any case */
    ck_assert_int_eq(cb_session_truncate(s, cb_session_len(s)), CB_OK);
    ck_assert_int_eq(cb_session_truncate(s, -1), CB_EARG);
    ck_assert_int_eq(cb_session_truncate(s, cb_session_len(s) + 1), CB_EARG);
    ck_assert_int_eq(cb_session_truncate(s, 0), CB_OK);
    cb_session_clear(plain);
    prefill(s, 0, N_PROMPT);
    prefill(plain, 0, N_PROMPT);
    same_sessions(s, plain, r->policy);
    cb_session_close(s);
    cb_session_close(plain);
}
END_TEST

/* A prompt may be cut, too: the rest is as if it had been the whole prompt. */
START_TEST(cut_prompts)
{
    for (int k = 0; k < 3; k++) {
        cb_session *s = open_row(&cb_setting[k]), *plain = open_row(&cb_setting[k]);
        prefill(s, 0, N_PROMPT);
        prefill(plain, 0, 100);
        ck_assert_int_eq(cb_session_truncate(s, 100), CB_OK);
        if (k == 1) { /* one that was cut forks too */
            cb_session *f;
            ck_assert_ok(cb_session_fork(s, &f));
            cb_session_close(s);
            s = f;
        }
        prefill(s, 200, 30);
        prefill(plain, 200, 30);
        same_sessions(s, plain, cb_setting[k].policy);
        cb_session_close(s);
        cb_session_close(plain);
    }
}
END_TEST

/* A policy that drops at the end of a prompt alone lets what follows be cut. */
START_TEST(cut_behind_what_was_dropped)
{
    const struct setting r = { "snapkv:budget=64,window=16", "f16", "dense", 1 };
    cb_session *s = open_row(&r), *plain = open_row(&r);

    prefill(s, 0, N_PROMPT);
    prefill(plain, 0, N_PROMPT);
    steps(s, N_PROMPT, N_PROMPT + N_STEP, 0);
    ck_assert_int_eq(cb_session_truncate(s, N_PROMPT - 1), CB_EUNSUPPORTED);
    cut_and_go_on(&r, s, plain, N_PROMPT);
    cb_session_close(s);
    cb_session_close(plain);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fork");
    TCase *c = tcase_create("fork");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, forks_go_on_alone, 0, cb_n_setting);
    tcase_add_test(c, an_empty_session_forks);
    tcase_add_test(c, forks_share_pages);
    tcase_add_test(c, forks_of_a_cut_session);
    tcase_add_loop_test(c, cut_timelines, 0, cb_n_setting);
    tcase_add_test(c, cut_prompts);
    tcase_add_test(c, cut_behind_what_was_dropped);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
