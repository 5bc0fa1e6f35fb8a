/* SPDX-License-Identifier: MIT */
/* remembered.h - a model, its prompts and a folder that remembers them, and what a prompt that is
 * found must be. For the tests of folders. */
#ifndef REMEMBERED_H
#define REMEMBERED_H

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctxbank.h"
#include "engine/session.h"
#include "kit/faults.h"
#include "kit/folder.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_CTX = 1024, N_STEP = 6, BLOCK = 128 };

static cb_model *m;
static cb_bank_dir *dir;
static int32_t ids[N_CTX], other[N_CTX]; /* which differs from token 200 on */
static char path[4096];

static inline void open_model(const char *family)
{
    struct tiny t = cb_tiny_get(family);
    uint32_t x = 7;

    m = cb_toy_model(&t, "cpu", 2);
    for (int i = 0; i < N_CTX; i++) {
        x = 1103515245u * x + 12345u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)cb_n_vocab(m));
        other[i] = i < 200 ? ids[i] : (ids[i] + 1) % cb_n_vocab(m);
    }
}

static inline void open_dir(uint64_t most)
{
    const struct cb_bank_dir_params p = { most };

    cb_bank_dir_close(dir);
    ck_assert_ok(cb_bank_dir_open(path, &p, &dir));
}

static inline void setup(void)
{
    open_model("qwen2");
    snprintf(path, sizeof path, "%s/folder", cb_folder_make("bank-dir"));
    dir = NULL;
    open_dir(0);
}

static inline void teardown(void)
{
    cb_bank_dir_close(dir);
    cb_model_close(m);
    cb_folder_remove();
}

/* ---- what a folder holds ---- */

/* Runs `each` on every file whose name ends so; returns how many there are. */
static inline int for_files(const char *end, void (*each)(const char *file))
{
    char file[8192];
    DIR *d = opendir(path);
    const struct dirent *f;
    int n = 0;

    ck_assert_ptr_nonnull(d);
    while ((f = readdir(d))) {
        const size_t len = strlen(f->d_name);
        if (len < strlen(end) || strcmp(f->d_name + len - strlen(end), end))
            continue;
        n++;
        snprintf(file, sizeof file, "%s/%s", path, f->d_name);
        if (each)
            each(file);
    }
    closedir(d);
    return n;
}

static inline int n_banks(void)
{
    return for_files(".bank", NULL);
}

static uint64_t sum_bytes;

static inline void add_bytes(const char *file)
{
    struct stat st;

    ck_assert_int_eq(stat(file, &st), 0);
    sum_bytes += (uint64_t)st.st_size;
}

static inline uint64_t bank_bytes(void)
{
    sum_bytes = 0;
    for_files(".bank", add_bytes);
    return sum_bytes;
}

static inline void is_good(const char *file)
{
    ck_assert_ok(cb_bank_verify(file));
}

static int n_continuing;

static inline void count_continuing(const char *file)
{
    char *about;

    ck_assert_int_eq(cb_bank_describe(file, &about), CB_OK);
    n_continuing += strstr(about, "\"continues\"") != NULL;
    free(about);
}

static inline void flip(const char *file)
{
    const int fd = open(file, O_RDWR);
    struct stat st;
    char b;

    ck_assert(fd >= 0 && !fstat(fd, &st));
    for (off_t at = 1 << 16; at < st.st_size; at += 4096) {
        ck_assert_int_eq(pread(fd, &b, 1, at), 1);
        b ^= 4;
        ck_assert_int_eq(pwrite(fd, &b, 1, at), 1);
    }
    close(fd);
}

static inline void cut_short(const char *file)
{
    ck_assert_int_eq(truncate(file, 70000), 0);
}

static inline void drop(const char *file)
{
    ck_assert_int_eq(unlink(file), 0);
}

static const char *longest; /* of for_files() */
static uint64_t longest_bytes;

static inline void note_longest(const char *file)
{
    static char name[8192];
    struct stat st;

    ck_assert_int_eq(stat(file, &st), 0);
    if ((uint64_t)st.st_size <= longest_bytes)
        return;
    longest_bytes = (uint64_t)st.st_size;
    snprintf(name, sizeof name, "%s", file);
    longest = name;
}

/* ---- sessions ---- */

static inline struct cb_session_params params_of(const struct setting *r)
{
    return (struct cb_session_params){ .n_ctx = N_CTX,
                                       .chunk = 64,
                                       .type_k = r->type,
                                       .type_v = cb_toy_values(r->type),
                                       .policy = r->policy,
                                       .prefill = r->prefill };
}

static inline void prefill(cb_session *s, const int32_t *tokens, int n)
{
    ck_assert_ok(cb_session_prefill(s, tokens, n, NULL));
}

/* The session of a prompt of n tokens: through the folder, which then remembers it. */
static inline cb_session *through(const struct setting *r, const int32_t *tokens, int n, int *n_hit)
{
    const struct cb_session_params p = params_of(r);
    cb_session *s;

    ck_assert_ok(cb_bank_dir_find(dir, m, &p, tokens, n, &s, n_hit));
    ck_assert_int_eq(cb_session_len(s), *n_hit);
    if (*n_hit < n)
        prefill(s, tokens + *n_hit, n - *n_hit);
    return s;
}

static inline void remember(const struct setting *r, const int32_t *tokens, int n)
{
    int n_hit;
    cb_session *s = through(r, tokens, n, &n_hit);

    ck_assert_ok(cb_bank_dir_put(dir, s));
    cb_session_close(s);
}

/* Blocks that were prepacked before a prompt went on count with their steps. */
static inline int near(uint64_t x, uint64_t y)
{
    return 100 * x <= 105 * y && 100 * y <= 105 * x;
}

static inline void same(const cb_session *a, const cb_session *b, const char *what)
{
    struct cb_memory x, y;

    cb_setting_same(m, a, b, what);
    cb_session_memory(a, &x);
    cb_session_memory(b, &y);
    ck_assert_msg(x.kv_bytes == y.kv_bytes && x.kept_min == y.kept_min &&
                      x.kept_max == y.kept_max &&
                      x.kv_read_bytes_per_token == y.kv_read_bytes_per_token &&
                      near(x.kv_peak_bytes, y.kv_peak_bytes),
                  "%s: %llu and %llu bytes, at most %llu and %llu", what,
                  (unsigned long long)x.kv_bytes, (unsigned long long)y.kv_bytes,
                  (unsigned long long)x.kv_peak_bytes, (unsigned long long)y.kv_peak_bytes);
}

/* The prompt gives, to the bit, what it gives without a folder, and so do tokens after it. Returns
 * how many tokens were remembered; the folder is left as it is. */
static inline int is_right(const struct setting *r, const int32_t *tokens, int n)
{
    const struct cb_session_params p = params_of(r);
    cb_session *fresh, *s;
    int n_hit;

    s = through(r, tokens, n, &n_hit);
    ck_assert_ok(cb_session_open(m, &p, &fresh));
    prefill(fresh, tokens, n);
    same(s, fresh, r->policy);
    for (int i = 0; i < N_STEP; i++) {
        ck_assert_int_eq(cb_session_decode(s, ids[i]), CB_OK);
        ck_assert_int_eq(cb_session_decode(fresh, ids[i]), CB_OK);
    }
    same(s, fresh, r->policy);
    prefill(s, ids + 50, 40);
    prefill(fresh, ids + 50, 40);
    same(s, fresh, r->policy);
    cb_session_close(fresh);
    cb_session_close(s);
    return n_hit;
}

/* So many tokens of the prompt are remembered, and it is right. A prompt of which nothing is
 * remembered is the one that it is compared with. */
static inline void gives(const struct setting *r, const int32_t *tokens, int n, int expected)
{
    const struct cb_session_params p = params_of(r);
    int n_hit = -1;
    cb_session *s;

    if (expected) {
        ck_assert_int_eq(is_right(r, tokens, n), expected);
        return;
    }
    ck_assert_ok(cb_bank_dir_find(dir, m, &p, tokens, n, &s, &n_hit));
    ck_assert_int_eq(n_hit, 0);
    ck_assert_int_eq(cb_session_len(s), 0);
    cb_session_close(s);
}

static inline int extends(const struct setting *r)
{
    cb_session *s = cb_setting_session(m, r, N_CTX);
    const int yes = cb_session_extends(s);

    cb_session_close(s);
    return yes;
}

/* A prompt of its own */
static inline const int32_t *prompt(int which)
{
    static int32_t p[N_CTX];

    for (int i = 0; i < N_CTX; i++)
        p[i] = (ids[i] + which) % cb_n_vocab(m);
    return p;
}

#endif
