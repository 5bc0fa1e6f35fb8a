/* SPDX-License-Identifier: MIT */
/* check_adopted_rows.c - a saved bank is opened with another policy than it was saved with: it goes
 * on as if the prompt had been read with that one. Policies that drop or change rows are refused.
 */
#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctxbank.h"
#include "kit/folder.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_PROMPT = 300, N_STEP = 24, N_CTX = 640, N_IDS = 700, N_FEW = 5, N_ALL = 4 };

/* They read few of the prompt's tokens; and all of them */
static const char *const few[N_FEW] = { "full", "sieve:budget=40,sink=4,recent=8",
                                        "sieve:budget=90,bits=4", "quest:budget=64,page=16",
                                        "omnikv:filter=1,budget=40" };
static const char *const all[N_ALL] = { "full", "sieve:budget=600", "quest:budget=640,page=16",
                                        "omnikv:filter=1,budget=600" };

static cb_model *m;
static int32_t ids[N_IDS];
static char path[4096];

static void setup(void)
{
    const struct tiny t = cb_tiny_get("qwen2");
    uint32_t x = 5;

    m = cb_toy_model(&t, "cpu", 2);
    for (int i = 0; i < N_IDS; i++) {
        x = 1103515245u * x + 12345u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)cb_n_vocab(m));
    }
    snprintf(path, sizeof path, "%s/bank", cb_folder_make("adopted"));
}

static void teardown(void)
{
    cb_model_close(m);
    cb_folder_remove();
}

static cb_session *read_with(const char *policy, const char *type, int n)
{
    const struct setting r = { policy, type, "dense", 0 };
    cb_session *s = cb_setting_session(m, &r, N_CTX);

    ck_assert_ok(cb_session_prefill(s, ids, n, NULL));
    return s;
}

static void save_with(const char *policy, const char *type)
{
    cb_session *s = read_with(policy, type, N_PROMPT);

    ck_assert_ok(cb_session_save(s, path));
    cb_session_close(s);
}

static void same_logits(const cb_session *a, const cb_session *b, double within, const char *what)
{
    double most = 0, off = 0;

    for (int i = 0; i < cb_n_vocab(m); i++) {
        const double x = (double)cb_session_logits(a)[i], y = (double)cb_session_logits(b)[i];
        most = fmax(most, fabs(x));
        off = fmax(off, fabs(x - y));
    }
    ck_assert_msg(off <= within * most, "%s: %g of %g", what, off, most);
}

/* The bank at `path`, opened with `policy`, goes on as a session that has read n tokens with it. */
static void goes_on(const char *file, const char *policy, const char *type, int n, double within)
{
    cb_session *s, *fresh = read_with(policy, type, n);
    struct cb_memory x, y;

    ck_assert_ok(cb_session_load_as(m, file, 0, policy, &s));
    ck_assert_int_eq(cb_session_len(s), n);
    for (int i = 0; i < N_STEP; i++) {
        ck_assert_ok(cb_session_decode(s, ids[n + i]));
        ck_assert_ok(cb_session_decode(fresh, ids[n + i]));
        same_logits(s, fresh, within, policy);
    }
    cb_session_memory(s, &x);
    cb_session_memory(fresh, &y);
    ck_assert_msg(x.kv_read_bytes_per_token == y.kv_read_bytes_per_token || within > 0,
                  "%s reads %llu and %llu bytes", policy,
                  (unsigned long long)x.kv_read_bytes_per_token,
                  (unsigned long long)y.kv_read_bytes_per_token);
    ck_assert_ok(cb_session_prefill(s, ids + n + N_STEP, 40, NULL));
    ck_assert_ok(cb_session_prefill(fresh, ids + n + N_STEP, 40, NULL));
    same_logits(s, fresh, within, policy);
    ck_assert_ok(cb_session_save(s, path)); /* and can be saved in its turn */
    cb_session_close(s);
    cb_session_close(fresh);
}

/* To the bit, where rows are stored as they were computed */
START_TEST(as_if_read_with_it)
{
    for (int to = 0; to < N_FEW; to++) {
        save_with(few[_i], "f32");
        goes_on(path, few[to], "f32", N_PROMPT, 0);
    }
}
END_TEST

/* Prepacked blocks become rows, rounded, and sketches are made of keys that are quantised by then:
 * other tokens may be chosen, so all are read. */
START_TEST(rounded)
{
    static const char *const type[] = { "f16", "bf16", "q8_0", "kivi4:32:32" };

    for (size_t t = 0; t < sizeof type / sizeof *type; t++)
        for (int to = 0; to < N_ALL; to++) {
            save_with(all[_i], type[t]);
            goes_on(path, all[to], type[t], N_PROMPT, 0.02);
        }
}
END_TEST

/* Rows of the first tokens stand in another file. */
START_TEST(a_file_that_continues_another)
{
    const struct setting r = { "full", "f32", "dense", 0 };
    char file[8192], folder[4096 + 8];
    const struct dirent *f;
    cb_bank_dir *dir;
    int n_opened = 0;
    DIR *d;

    snprintf(folder, sizeof folder, "%s.dir", path);
    ck_assert_ok(cb_bank_dir_open(folder, NULL, &dir));
    for (int n = 256; n <= 512; n += 256) {
        cb_session *s = cb_setting_session(m, &r, N_CTX);
        ck_assert_ok(cb_session_prefill(s, ids, n, NULL));
        ck_assert_ok(cb_bank_dir_put(dir, s));
        cb_session_close(s);
    }
    d = opendir(folder);
    while ((f = readdir(d))) {
        cb_session *s;
        int n;
        if (!strstr(f->d_name, ".bank"))
            continue;
        snprintf(file, sizeof file, "%s/%s", folder, f->d_name);
        ck_assert_ok(cb_session_load(m, file, 0, &s));
        n = cb_session_len(s);
        cb_session_close(s);
        for (int to = 0; to < N_FEW; to++)
            goes_on(file, few[to], "f32", n, 0);
        n_opened++;
    }
    closedir(d);
    cb_bank_dir_close(dir);
    ck_assert_int_eq(n_opened, 2);
}
END_TEST

/* Every policy either goes on as if it had read the prompt, or is refused by name. */
START_TEST(every_policy)
{
    int n_opened = 0, n_refused = 0;
    char policy[200];

    for (int i = 0; cb_setting_policy(i, policy, sizeof policy); i++) {
        cb_session *s;
        const struct cb_session_params p = { .policy = policy };
        if (cb_session_open(m, &p, &s)) /* not with a model of so few layers */
            continue;
        cb_session_close(s);
        save_with("full", "f32");
        if (!cb_session_load_as(m, path, 0, policy, &s)) {
            cb_session_close(s);
            goes_on(path, policy, "f32", N_PROMPT, 0);
            n_opened++;
            continue;
        }
        ck_assert_msg(strstr(cb_error(), "rows are not those of"), "%s: %s", policy, cb_error());
        ck_assert_ptr_null(s);
        save_with(policy, "f32");
        ck_assert_int_eq(cb_session_load_as(m, path, 0, "full", &s), CB_EUNSUPPORTED);
        n_refused++;
    }
    ck_assert_msg(n_opened >= 4 && n_refused >= 15, "%d opened, %d refused", n_opened, n_refused);
}
END_TEST

START_TEST(refused)
{
    cb_session *s;

    save_with("full", "f32");
    ck_assert_int_eq(cb_session_load_as(m, path, 0, "nix", &s), CB_EARG);
    ck_assert_int_eq(cb_session_load_as(m, path, 0, "sieve:budget=no", &s), CB_EARG);
    ck_assert_int_eq(cb_session_load_as(m, path, 100, "sieve", &s), CB_EFULL);
    ck_assert_int_eq(cb_session_load_as(m, "/no/such", 0, "sieve", &s), CB_EIO);
    ck_assert_ptr_null(s);
    save_with("sieve:budget=40", "planes");
    ck_assert_int_eq(cb_session_load_as(m, path, 0, "sieve:budget=50", &s), CB_EUNSUPPORTED);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("adopted rows");
    TCase *c = tcase_create("adopted rows");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, as_if_read_with_it, 0, N_FEW);
    tcase_add_loop_test(c, rounded, 0, N_ALL);
    tcase_add_test(c, a_file_that_continues_another);
    tcase_add_test(c, every_policy);
    tcase_add_test(c, refused);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
