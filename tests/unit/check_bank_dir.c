/* SPDX-License-Identifier: MIT */
/* check_bank_dir.c - a prompt that a folder remembers, whole or in part, is to the bit the prompt
 * computed as a whole; which prompts are found, and which files give way. */
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "kit/suite.h"
#include "remembered.h"

/* ---- what is found ---- */

/* The prompt itself, one that goes on, one that differs from token 200 on, a shorter one */
static void found_in_all_ways(const struct setting *r)
{
    const int grows = extends(r);

    gives(r, ids, 300, 0);
    remember(r, ids, 300);
    ck_assert_int_eq(n_banks(), 1);
    for_files(".bank", is_good);
    gives(r, ids, 300, 300);
    gives(r, ids, 310, grows ? 300 : 0);
    gives(r, ids, 620, grows ? 300 : 0);
    gives(r, other, 300, grows ? 200 : 0);
    gives(r, other, 620, grows ? 200 : 0);
    gives(r, ids, 290, grows ? 289 : 0); /* the last one is fed, for its logits */
    gives(r, ids, 2 * BLOCK, grows ? 2 * BLOCK - 1 : 0);
    gives(r, ids, 150, grows ? 149 : 0);
    gives(r, ids, BLOCK + 1, grows ? BLOCK : 0);
    gives(r, ids, BLOCK, 0);
    gives(r, ids, 127, 0);
}

START_TEST(found)
{
    found_in_all_ways(&cb_setting[_i]);
}
END_TEST

/* Each continues the one before; the prompts that differ continue the first block alone. */
static void continued_in_all_ways(const struct setting *r)
{
    const int grows = extends(r);

    remember(r, ids, 300);
    remember(r, ids, 450);
    remember(r, other, 450);
    remember(r, ids, 600);
    ck_assert_int_eq(n_banks(), 4);
    for_files(".bank", is_good);
    n_continuing = 0;
    for_files(".bank", count_continuing);
    ck_assert_int_eq(n_continuing, grows ? 3 : 0);
    gives(r, ids, 600, 600);
    gives(r, other, 450, 450);
    gives(r, ids, 450, 450);
    gives(r, ids, 900, grows ? 600 : 0);
    gives(r, other, 900, grows ? 450 : 0);
    gives(r, other, 400, grows ? 399 : 0);
}

START_TEST(continued)
{
    continued_in_all_ways(&cb_setting[_i]);
}
END_TEST

/* Models whose layers have windows of their own, all of them or some */
START_TEST(windows)
{
    static const char *const family[] = { "mistral" };

    cb_model_close(m);
    open_model(family[_i]);
    found_in_all_ways(&cb_setting[0]);
    for_files(".bank", drop);
    continued_in_all_ways(&cb_setting[0]);
}
END_TEST

START_TEST(a_file_that_continues_another_opens)
{
    const struct setting *r = &cb_setting[0];
    char file[8192];
    DIR *d;
    const struct dirent *f;
    int n_opened = 0;

    remember(r, ids, 300);
    remember(r, ids, 600);
    d = opendir(path);
    while ((f = readdir(d))) {
        cb_session *s, *fresh;
        if (!strstr(f->d_name, ".bank"))
            continue;
        snprintf(file, sizeof file, "%s/%s", path, f->d_name);
        ck_assert_ok(cb_session_load(m, file, 0, &s));
        fresh = cb_setting_session(m, r, N_CTX);
        prefill(fresh, ids, cb_session_len(s));
        same(s, fresh, file);
        cb_session_close(fresh);
        cb_session_close(s);
        n_opened++;
    }
    closedir(d);
    ck_assert_int_eq(n_opened, 2);
}
END_TEST

START_TEST(common_beginnings_are_stored_once)
{
    const struct setting *r = &cb_setting[0];
    uint64_t first, both;

    remember(r, ids, 500);
    first = bank_bytes();
    remember(r, ids, 600);
    both = bank_bytes();
    for_files(".bank", drop);
    remember(r, ids, 600);
    ck_assert_uint_lt(2 * (both - first), bank_bytes());
}
END_TEST

/* ---- what is not found ---- */

START_TEST(other_settings)
{
    const struct setting r = { "full", "f16", "dense", 1 }, type = { "full", "q8_0", "dense", 1 },
                         policy = { "snapkv:budget=64,window=16", "f16", "dense", 0 };
    struct tiny t = cb_tiny_get("qwen2");
    cb_model *mine = m;

    remember(&r, ids, 300);
    ck_assert_int_eq(is_right(&type, ids, 300), 0);
    ck_assert_int_eq(is_right(&policy, ids, 300), 0);
    t.seed++;
    m = cb_toy_model(&t, "cpu", 2);
    ck_assert_int_eq(is_right(&r, ids, 300), 0);
    cb_model_close(m);
    m = mine;
    ck_assert_int_eq(is_right(&r, ids, 300), 300);
}
END_TEST

/* Generated tokens are not what a prompt of them would leave. */
START_TEST(only_prompts)
{
    const struct setting *r = &cb_setting[0];
    int n_hit;
    cb_session *s = through(r, ids, 300, &n_hit);

    ck_assert_int_eq(cb_session_decode(s, ids[300]), CB_OK);
    ck_assert_int_eq(cb_bank_dir_put(dir, s), CB_OK);
    ck_assert_int_eq(n_banks(), 0);
    prefill(s, ids + 301, 50);
    ck_assert_int_eq(cb_bank_dir_put(dir, s), CB_OK);
    ck_assert_int_eq(n_banks(), 0);
    ck_assert_int_eq(cb_session_truncate(s, 270), CB_OK); /* it is the prompt's beginning again */
    ck_assert_int_eq(cb_bank_dir_put(dir, s), CB_OK);
    ck_assert_int_eq(n_banks(), 1);
    cb_session_close(s);
    gives(r, ids, 270, 269); /* a cut leaves no logits */
    cb_session_close(through(r, ids, 280, &n_hit));
    ck_assert_int_eq(n_hit, 270);
    s = through(r, ids, 300, &n_hit);
    ck_assert_int_eq(cb_session_truncate(s, 256), CB_OK);
    prefill(s, other + 256, 200);
    ck_assert_int_eq(cb_bank_dir_put(dir, s), CB_OK);
    ck_assert_int_eq(n_banks(), 2);
    cb_session_close(s);
    s = through(r, ids, 100, &n_hit); /* too short */
    ck_assert_int_eq(cb_bank_dir_put(dir, s), CB_OK);
    ck_assert_int_eq(n_banks(), 2);
    cb_session_close(s);
}
END_TEST

/* Heads that few query heads share read the rows of the first block as they are until it is full.
 * Prepacked ones that a cut makes rows again are rounded. */
START_TEST(a_cut_in_the_first_block_is_no_prompt)
{
    const struct setting *r = &cb_setting[0];
    int n_hit;
    cb_session *s = through(r, ids, 300, &n_hit);
    const int rounds = s->bank.store[0].prepacked > 0;

    ck_assert_int_eq(cb_session_truncate(s, 127), CB_OK);
    ck_assert_int_eq(cb_session_prefill_is_exact(s, 127), !rounds);
    prefill(s, ids + 127, 100);
    ck_assert_ok(cb_bank_dir_put(dir, s));
    ck_assert_int_eq(n_banks(), !rounds);
    cb_session_close(s);
}
END_TEST

/* ---- trouble ---- */

/* Damaged files are put aside, and the prompt is remembered again. */
START_TEST(damaged)
{
    const struct setting *r = &cb_setting[0];

    for (int i = 0; i < 2; i++) {
        remember(r, ids, 300);
        remember(r, ids, 600);
        for_files(".bank", i ? cut_short : flip);
        ck_assert_int_eq(is_right(r, ids, 600), 0);
        ck_assert_int_eq(n_banks(), 0);
        ck_assert_int_eq(for_files(".damaged", NULL), 2);
        remember(r, ids, 600);
        ck_assert_int_eq(is_right(r, ids, 600), 600);
        for_files(".bank", drop);
    }
}
END_TEST

/* The file that others continue is gone, or is another one. */
START_TEST(orphans)
{
    const struct setting *r = &cb_setting[0];

    remember(r, ids, 700);
    longest_bytes = 0;
    for_files(".bank", note_longest);
    remember(r, ids, 750);
    ck_assert_int_eq(n_banks(), 2);
    drop(longest);
    ck_assert_int_eq(is_right(r, ids, 750), 0);
    ck_assert_int_eq(for_files(".damaged", NULL), 1);
    ck_assert_int_eq(n_banks(), 0);
    remember(r, ids, 750);
    ck_assert_int_eq(is_right(r, ids, 750), 750);
}
END_TEST

/* ---- room ---- */

START_TEST(a_limit)
{
    const struct setting *r = &cb_setting[0];
    uint64_t one;

    remember(r, prompt(0), 300);
    one = bank_bytes();
    open_dir(4 * one);
    for (int i = 0; i < 12; i++) {
        remember(r, prompt(i), 300);
        ck_assert_uint_le(bank_bytes(), 4 * one);
        ck_assert_int_eq(is_right(r, prompt(i), 300), 300);
        ck_assert_int_eq(is_right(r, prompt(0), 300), 300); /* in use, so it stays */
    }
    ck_assert_int_ge(n_banks(), 2);
    open_dir(one / 2); /* nothing fits: nothing is removed for it */
    remember(r, prompt(20), 300);
    ck_assert_int_ge(n_banks(), 2);
    ck_assert_int_eq(is_right(r, prompt(20), 300), 0);
}
END_TEST

/* A file that others continue outlives them, and damaged files go first. */
START_TEST(a_limit_with_continued_files)
{
    const struct setting *r = &cb_setting[0];
    uint64_t all;

    for_files(".bank", drop);
    remember(r, prompt(1), 300);
    for_files(".bank", flip);
    ck_assert_int_eq(is_right(r, prompt(1), 300), 0);
    remember(r, prompt(2), 300);
    remember(r, prompt(2), 600);
    remember(r, prompt(2), 900);
    all = bank_bytes();
    open_dir(all + all / 8);
    remember(r, prompt(3), 150);
    ck_assert_int_eq(for_files(".damaged", NULL), 0);
    ck_assert_uint_le(bank_bytes(), all + all / 8);
    for (int i = 4; i < 10; i++) {
        remember(r, prompt(i), 400);
        ck_assert_uint_le(bank_bytes(), all + all / 8);
        is_right(r, prompt(2), 900);
        ck_assert_int_eq(for_files(".damaged", NULL), 0); /* no orphan */
    }
}
END_TEST

static int n_seen, nth_old;
static char old[8192];

static void set_age(const char *file)
{
    const time_t at = time(NULL) - (n_seen == nth_old ? 5000 : 50);
    const struct timespec t[2] = { { .tv_sec = at }, { .tv_sec = at } };

    if (n_seen++ == nth_old)
        snprintf(old, sizeof old, "%s", file);
    ck_assert_int_eq(utimensat(AT_FDCWD, file, t, 0), 0);
}

/* Of files that are worth as much, the one goes that was not used for longest, whichever it is. */
START_TEST(the_oldest_goes)
{
    const struct setting *r = &cb_setting[0];

    for (nth_old = 0; nth_old < 3; nth_old++) {
        for_files(".bank", drop);
        open_dir(1 << 30);
        for (int i = 1; i < 4; i++)
            remember(r, prompt(i), 300);
        ck_assert_int_eq(n_banks(), 3);
        n_seen = 0;
        for_files(".bank", set_age);
        open_dir(bank_bytes() + 1000);
        remember(r, prompt(4), 300);
        ck_assert_int_eq(n_banks(), 3);
        ck_assert_int_ne(access(old, F_OK), 0);
    }
}
END_TEST

/* Files of other names are not touched. */
START_TEST(strangers)
{
    const struct setting *r = &cb_setting[0];
    char name[8192];

    snprintf(name, sizeof name, "%s/mine.bank", path);
    remember(r, ids, 300);
    longest_bytes = 0;
    for_files(".bank", note_longest);
    ck_assert_int_eq(rename(longest, name), 0);
    open_dir(bank_bytes() + 1000);
    for (int i = 0; i < 4; i++)
        remember(r, prompt(i), 300);
    ck_assert_int_eq(access(name, F_OK), 0);
    ck_assert_int_eq(n_banks(), 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bank dir");
    TCase *c = tcase_create("bank dir");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 600);
    tcase_add_loop_test(c, found, 0, cb_n_setting);
    tcase_add_loop_test(c, continued, 0, cb_n_setting);
    tcase_add_loop_test(c, windows, 0, 1);
    tcase_add_test(c, a_file_that_continues_another_opens);
    tcase_add_test(c, common_beginnings_are_stored_once);
    tcase_add_test(c, other_settings);
    tcase_add_test(c, only_prompts);
    tcase_add_test(c, a_cut_in_the_first_block_is_no_prompt);
    tcase_add_test(c, damaged);
    tcase_add_test(c, orphans);
    tcase_add_test(c, a_limit);
    tcase_add_test(c, a_limit_with_continued_files);
    tcase_add_test(c, the_oldest_goes);
    tcase_add_test(c, strangers);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
