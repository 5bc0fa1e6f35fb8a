/* SPDX-License-Identifier: MIT */
/* check_bank_dir.c - a prompt that a folder remembers, whole or in part, is to the bit the prompt
 * computed anew, and whatever happens to the folder, the answer is right. */
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

static void open_model(const char *family)
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

static void open_dir(uint64_t most)
{
    const struct cb_bank_dir_params p = { most };

    cb_bank_dir_close(dir);
    ck_assert_msg(!cb_bank_dir_open(path, &p, &dir), "%s", cb_error());
}

static void setup(void)
{
    open_model("qwen2");
    snprintf(path, sizeof path, "%s/folder", cb_folder_make("bank-dir"));
    dir = NULL;
    open_dir(0);
}

static void teardown(void)
{
    cb_bank_dir_close(dir);
    cb_model_close(m);
    cb_folder_remove();
}

/* ---- what a folder holds ---- */

/* Runs `each` on every file whose name ends so; returns how many there are. */
static int for_files(const char *end, void (*each)(const char *file))
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

static int n_banks(void)
{
    return for_files(".bank", NULL);
}

static uint64_t sum_bytes;

static void add_bytes(const char *file)
{
    struct stat st;

    ck_assert_int_eq(stat(file, &st), 0);
    sum_bytes += (uint64_t)st.st_size;
}

static uint64_t bank_bytes(void)
{
    sum_bytes = 0;
    for_files(".bank", add_bytes);
    return sum_bytes;
}

static void is_good(const char *file)
{
    ck_assert_msg(!cb_bank_verify(file), "%s", cb_error());
}

static int n_continuing;

static void count_continuing(const char *file)
{
    char *about;

    ck_assert_int_eq(cb_bank_describe(file, &about), CB_OK);
    n_continuing += strstr(about, "\"continues\"") != NULL;
    free(about);
}

static void flip(const char *file)
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

static void cut_short(const char *file)
{
    ck_assert_int_eq(truncate(file, 70000), 0);
}

static void drop(const char *file)
{
    ck_assert_int_eq(unlink(file), 0);
}

/* ---- sessions ---- */

static struct cb_session_params params_of(const struct setting *r)
{
    return (struct cb_session_params){ .n_ctx = N_CTX,
                                       .chunk = 64,
                                       .type_k = r->type,
                                       .type_v = cb_toy_values(r->type),
                                       .policy = r->policy,
                                       .prefill = r->prefill };
}

static void prefill(cb_session *s, const int32_t *tokens, int n)
{
    ck_assert_msg(!cb_session_prefill(s, tokens, n, NULL), "%s", cb_error());
}

/* The session of a prompt of n tokens: through the folder, which then remembers it. */
static cb_session *through(const struct setting *r, const int32_t *tokens, int n, int *n_hit)
{
    const struct cb_session_params p = params_of(r);
    cb_session *s;

    ck_assert_msg(!cb_bank_dir_find(dir, m, &p, tokens, n, &s, n_hit), "%s", cb_error());
    ck_assert_int_eq(cb_session_len(s), *n_hit);
    if (*n_hit < n)
        prefill(s, tokens + *n_hit, n - *n_hit);
    return s;
}

static void remember(const struct setting *r, const int32_t *tokens, int n)
{
    int n_hit;
    cb_session *s = through(r, tokens, n, &n_hit);

    ck_assert_msg(!cb_bank_dir_put(dir, s), "%s", cb_error());
    cb_session_close(s);
}

/* Blocks that were prepacked before a prompt went on count with their steps. */
static int near(uint64_t x, uint64_t y)
{
    return 100 * x <= 105 * y && 100 * y <= 105 * x;
}

static void same(const cb_session *a, const cb_session *b, const char *what)
{
    const size_t n = (size_t)cb_n_vocab(m);
    struct cb_memory x, y;

    ck_assert_msg(!memcmp(cb_session_logits(a), cb_session_logits(b), n * sizeof(float)), "%s",
                  what);
    ck_assert_int_eq(cb_session_len(a), cb_session_len(b));
    ck_assert_mem_eq(cb_session_tokens(a), cb_session_tokens(b),
                     (size_t)cb_session_len(a) * sizeof(int32_t));
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
static int is_right(const struct setting *r, const int32_t *tokens, int n)
{
    const struct cb_session_params p = params_of(r);
    cb_session *anew, *s;
    int n_hit;

    s = through(r, tokens, n, &n_hit);
    ck_assert_msg(!cb_session_open(m, &p, &anew), "%s", cb_error());
    prefill(anew, tokens, n);
    same(s, anew, r->policy);
    for (int i = 0; i < N_STEP; i++) {
        ck_assert_int_eq(cb_session_decode(s, ids[i]), CB_OK);
        ck_assert_int_eq(cb_session_decode(anew, ids[i]), CB_OK);
    }
    same(s, anew, r->policy);
    prefill(s, ids + 50, 40);
    prefill(anew, ids + 50, 40);
    same(s, anew, r->policy);
    cb_session_close(anew);
    cb_session_close(s);
    return n_hit;
}

/* So many tokens of the prompt are remembered, and it is right. A prompt of which nothing is
 * remembered is the one that it is compared with. */
static void gives(const struct setting *r, const int32_t *tokens, int n, int expected)
{
    const struct cb_session_params p = params_of(r);
    int n_hit = -1;
    cb_session *s;

    if (expected) {
        ck_assert_int_eq(is_right(r, tokens, n), expected);
        return;
    }
    ck_assert_msg(!cb_bank_dir_find(dir, m, &p, tokens, n, &s, &n_hit), "%s", cb_error());
    ck_assert_int_eq(n_hit, 0);
    ck_assert_int_eq(cb_session_len(s), 0);
    cb_session_close(s);
}

static int extends(const struct setting *r)
{
    cb_session *s = cb_setting_session(m, r, N_CTX);
    const int yes = cb_session_extends(s);

    cb_session_close(s);
    return yes;
}

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
    gives(r, other, 300, grows ? BLOCK : 0);
    gives(r, other, 620, grows ? BLOCK : 0);
    gives(r, ids, 290, grows ? 2 * BLOCK : 0);
    gives(r, ids, 2 * BLOCK, grows ? BLOCK : 0);
    gives(r, ids, 150, grows ? BLOCK : 0);
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
    gives(r, other, 400, grows ? 3 * BLOCK : 0);
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
        cb_session *s, *anew;
        if (!strstr(f->d_name, ".bank"))
            continue;
        snprintf(file, sizeof file, "%s/%s", path, f->d_name);
        ck_assert_msg(!cb_session_load(m, file, 0, &s), "%s", cb_error());
        anew = cb_setting_session(m, r, N_CTX);
        prefill(anew, ids, cb_session_len(s));
        same(s, anew, file);
        cb_session_close(anew);
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
    ck_assert_int_eq(cb_session_truncate(s, 270), CB_OK); /* the rows of a block were rounded */
    ck_assert_int_eq(cb_bank_dir_put(dir, s), CB_OK);
    ck_assert_int_eq(n_banks(), 0);
    cb_session_close(s);
    s = through(r, ids, 300, &n_hit);
    ck_assert_int_eq(cb_session_truncate(s, 256), CB_OK);
    prefill(s, other + 256, 200);
    ck_assert_int_eq(cb_bank_dir_put(dir, s), CB_OK);
    ck_assert_int_eq(n_banks(), 1);
    cb_session_close(s);
    s = through(r, ids, 100, &n_hit); /* too short */
    ck_assert_int_eq(cb_bank_dir_put(dir, s), CB_OK);
    ck_assert_int_eq(n_banks(), 1);
    cb_session_close(s);
}
END_TEST

/* ---- trouble ---- */

/* Damaged files are put aside, and the prompt is remembered anew. */
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

static const char *longest; /* of for_files() */
static uint64_t longest_bytes;

static void note_longest(const char *file)
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

/* ---- faults that pass ---- */

/* Four files, of which three continue others */
static void remember_four(const struct setting *r)
{
    remember(r, ids, 300);
    remember(r, ids, 450);
    remember(r, other, 450);
    remember(r, ids, 600);
    ck_assert_int_eq(n_banks(), 4);
}

/* A look-up of a prompt, and writing one more, while calls fail */
static int look_up_and_put(const struct setting *r, const cb_session *more)
{
    const struct cb_session_params p = params_of(r);
    cb_session *s = NULL;
    int n_hit, failed;

    if (!cb_bank_dir_find(dir, m, &p, ids, 700, &s, &n_hit))
        cb_session_close(s);
    (void)cb_bank_dir_put(dir, more);
    failed = cb_fault_end();
    return failed;
}

/* Whichever call fails, once or with all after it: no file is put aside or lost, and all that the
 * folder remembers is found afterwards. */
START_TEST(passing_faults)
{
    const struct setting *r = &cb_setting[0];
    const enum fault_kind kind = (enum fault_kind)(_i / 2);
    const int step = kind == FAULT_ALLOC ? 3 * CB_SLOWED : 1;
    int n_hit, nth = 1, n_faults = 0;
    cb_session *more;

    remember_four(r);
    more = through(r, other, 620, &n_hit);
    for (int failed = 1; failed; nth += step) {
        open_dir(0);
        cb_fault_at(kind, nth, _i % 2);
        failed = look_up_and_put(r, more);
        n_faults += failed > 0;
        ck_assert_int_eq(for_files(".damaged", NULL), 0);
        ck_assert_int_ge(n_banks(), 4);
        for_files(".bank", is_good);
        ck_assert_int_eq(for_files(".tmp", NULL), 0);
    }
    ck_assert_int_gt(n_faults, 0);
    cb_session_close(more);
    open_dir(0);
    ck_assert_int_eq(is_right(r, ids, 700), 600);
    ck_assert_int_eq(is_right(r, other, 450), 450);
}
END_TEST

/* Room is short while calls fail: a file goes only if the worth of all was read, and never one that
 * another file continues. */
START_TEST(room_and_passing_faults)
{
    const struct setting *r = &cb_setting[0];
    int n_hit, n_refused = 0;
    cb_session *more = through(r, other, 900, &n_hit);

    for (int nth = 1, failed = 1; failed; nth++) {
        int err;
        open_dir(0);
        for_files(".bank", drop);
        remember_four(r);
        open_dir(bank_bytes() + 1000);
        cb_fault_at(_i ? FAULT_OPEN : FAULT_READ, nth, 0);
        err = cb_bank_dir_put(dir, more);
        failed = cb_fault_end();
        n_refused += err == CB_EIO;
        ck_assert_int_eq(n_banks() < 4 && err, 0);
        for_files(".bank", is_good);
        is_right(r, ids, 610);
        is_right(r, other, 450);
        ck_assert_int_eq(for_files(".damaged", NULL), 0); /* no orphan */
    }
    ck_assert_int_gt(n_refused, 0);
    cb_session_close(more);
}
END_TEST

START_TEST(no_descriptors)
{
    const struct setting *r = &cb_setting[0];
    const struct cb_session_params p = params_of(r);
    struct rlimit was, few;

    remember_four(r);
    getrlimit(RLIMIT_NOFILE, &was);
    for (int n = 4; n < 24; n++) {
        cb_session *s = NULL;
        int n_hit = 0;
        open_dir(0);
        few = (struct rlimit){ (rlim_t)n, was.rlim_max };
        setrlimit(RLIMIT_NOFILE, &few);
        if (!cb_bank_dir_find(dir, m, &p, ids, 700, &s, &n_hit))
            cb_session_close(s);
        setrlimit(RLIMIT_NOFILE, &was);
        ck_assert_int_eq(n_banks(), 4);
        ck_assert_int_eq(for_files(".damaged", NULL), 0);
    }
    ck_assert_int_eq(is_right(r, ids, 700), 600);
}
END_TEST

/* Another program, which holds the folder's lock, replaces a damaged file while a look-up wants to
 * put it aside: the new one stays. */
START_TEST(replaced_meanwhile)
{
    const struct setting *r = &cb_setting[0];
    char bad[8192], good[8192], lock[8192];
    int fd, status, ready[2];
    char c;
    pid_t pid;

    remember(r, ids, 300);
    longest_bytes = 0;
    for_files(".bank", note_longest);
    snprintf(bad, sizeof bad, "%s", longest);
    snprintf(good, sizeof good, "%s/good", path);
    snprintf(lock, sizeof lock, "%s/.lock", path);
    ck_assert_int_eq(rename(bad, good), 0);
    remember(r, ids, 300);
    cut_short(bad);
    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    if (!pid) {
        fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (flock(fd, LOCK_EX) || write(ready[1], "", 1) != 1)
            _exit(1);
        usleep(200000);
        _exit(rename(good, bad));
    }
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    ck_assert_int_eq(is_right(r, ids, 300), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(for_files(".damaged", NULL), 0);
    ck_assert_int_eq(is_right(r, ids, 300), 300);
}
END_TEST

static int n_notes;

static void count_note(void *arg, enum cb_log_level level, const char *text)
{
    (void)arg;
    n_notes += level == CB_LOG_NOTE && strstr(text, "put aside");
}

/* Putting a file aside is said, whether its header or its rows are damaged. */
START_TEST(putting_aside_is_said)
{
    const struct setting *r = &cb_setting[0];
    const struct tiny t = cb_tiny_get("qwen2");
    const struct cb_model_params p = { .n_threads = 2, .log = count_note };

    cb_model_close(m);
    m = cb_toy_model_with(&t, &p);
    for (int i = 0; i < 2; i++) {
        n_notes = 0;
        remember(r, ids, 300);
        for_files(".bank", i ? cut_short : flip);
        ck_assert_int_eq(is_right(r, ids, 300), 0);
        ck_assert_int_eq(n_notes, 1);
    }
}
END_TEST

/* ---- many files that continue each other ---- */

static int longest_row;

/* Files that `file` continues, and itself */
static void count_row(const char *file)
{
    char name[8192];
    int n = 0;

    snprintf(name, sizeof name, "%s", file);
    while (*name) {
        char *about, *at;
        ck_assert_msg(!cb_bank_describe(name, &about), "%s", cb_error());
        at = strstr(about, "\"file\": \"");
        if (at)
            snprintf(name, sizeof name, "%s/%.*s", path, (int)strcspn(at + 9, "\""), at + 9);
        else
            *name = 0;
        free(about);
        n++;
    }
    longest_row = n > longest_row ? n : longest_row;
}

/* A conversation of many turns, each remembered: each is found, nothing is put aside, and a look-up
 * opens each file once more at most. */
START_TEST(many_turns)
{
    const struct setting *r = &cb_setting[0];
    const int turns = CB_SLOWED > 1 ? 70 : 140;
    const struct cb_session_params p = params_of(r);
    cb_session *s;

    for (int i = 0; i < turns; i++) {
        int n_hit;
        cb_fault_at(FAULT_KINDS, 0, 0); /* counts the calls */
        ck_assert_int_eq(cb_bank_dir_find(dir, m, &p, ids, 200 + i, &s, &n_hit), CB_OK);
        ck_assert_int_eq(n_hit, i ? 200 + i - 1 : 0);
        ck_assert_int_le(cb_fault_calls(FAULT_OPEN), 2 * 64 + 8);
        prefill(s, ids + n_hit, 200 + i - n_hit);
        ck_assert_msg(!cb_bank_dir_put(dir, s), "%s", cb_error());
        cb_session_close(s);
        ck_assert_int_eq(n_banks(), i + 1);
    }
    ck_assert_int_eq(for_files(".damaged", NULL), 0);
    for_files(".bank", count_row);
    ck_assert_int_le(longest_row, 64);
    ck_assert_int_eq(is_right(r, ids, 200 + turns + 5), 200 + turns - 1);
}
END_TEST

START_TEST(no_folder)
{
    const struct setting *r = &cb_setting[0];
    int n_hit;
    cb_session *s;

    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(is_right(r, ids, 300), 0);
    s = through(r, ids, 300, &n_hit);
    ck_assert_int_eq(cb_bank_dir_put(dir, s), CB_EIO);
    ck_assert_msg(strstr(cb_error(), path) != NULL, "%s", cb_error());
    cb_session_close(s);
}
END_TEST

/* Another program holds the lock, and may be stopped: nobody waits for it. */
START_TEST(a_held_lock)
{
    const struct setting *r = &cb_setting[0];
    char lock[sizeof path + 8];
    int n_hit, fd;
    cb_session *s;

    snprintf(lock, sizeof lock, "%s/.lock", path);
    fd = open(lock, O_RDWR | O_CREAT, 0600);
    ck_assert(fd >= 0 && !flock(fd, LOCK_EX));
    s = through(r, ids, 300, &n_hit);
    ck_assert_int_eq(cb_bank_dir_put(dir, s), CB_EIO);
    ck_assert_msg(strstr(cb_error(), "another program holds the lock") != NULL, "%s", cb_error());
    ck_assert_int_eq(for_files(".bank", NULL), 0);
    close(fd);
    ck_assert_msg(!cb_bank_dir_put(dir, s), "%s", cb_error());
    ck_assert_int_eq(for_files(".bank", NULL), 1);
    cb_session_close(s);
}
END_TEST

START_TEST(no_such_folder)
{
    cb_bank_dir *d;

    ck_assert_int_eq(cb_bank_dir_open("/no/such/folder", NULL, &d), CB_EIO);
    ck_assert_ptr_null(d);
    ck_assert_int_eq(cb_bank_dir_open("/proc/version", NULL, &d), CB_EIO);
    ck_assert_ptr_null(d);
    cb_bank_dir_close(NULL);
}
END_TEST

/* A file size limit stands for a full disk. */
START_TEST(a_full_disk)
{
    const struct setting *r = &cb_setting[0];
    struct rlimit was, small;
    int n_hit, n_failed = 0, n_tried = 0;
    cb_session *s;

    remember(r, ids, 300);
    s = through(r, ids, 600, &n_hit);
    getrlimit(RLIMIT_FSIZE, &was);
    signal(SIGXFSZ, SIG_IGN);
    small = was;
    for (rlim_t bytes = 100; bytes < 100000; bytes = bytes * 5 + 1, n_tried++) {
        small.rlim_cur = bytes; /* what an assertion writes does not fit either */
        n_failed += !setrlimit(RLIMIT_FSIZE, &small) && cb_bank_dir_put(dir, s) == CB_EIO;
    }
    setrlimit(RLIMIT_FSIZE, &was);
    ck_assert_int_eq(n_failed, n_tried);
    cb_session_close(s);
    ck_assert_int_eq(n_banks(), 1);
    ck_assert_int_eq(is_right(r, ids, 300), 300);
}
END_TEST

/* ---- room ---- */

/* A prompt of its own */
static const int32_t *prompt(int which)
{
    static int32_t p[N_CTX];

    for (int i = 0; i < N_CTX; i++)
        p[i] = (ids[i] + which) % cb_n_vocab(m);
    return p;
}

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

/* ---- several processes ---- */

/* Killed at any moment of writing and removing, the folder holds whole files alone. */
START_TEST(killed)
{
    const struct setting *r = &cb_setting[0];
    cb_session *s[4];
    int n_hit, n_there = 0;

    remember(r, ids, 300);
    open_dir(3 * bank_bytes());
    for (int i = 0; i < 4; i++) {
        static const int n[] = { 300, 500, 420, 340 };
        s[i] = through(r, i < 2 ? ids : prompt(i), n[i] + 40, &n_hit);
    }
    for (int i = 0; i < 200; i++) {
        pid_t pid = fork();
        if (!pid) {
            for (int j = i; j < i + 4; j++)
                (void)cb_bank_dir_put(dir, s[j % 4]);
            _exit(0);
        }
        usleep((useconds_t)(i * 37 % 4000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        for_files(".bank", is_good);
        n_there += n_banks() > 1;
        if (i % 20 == 0)
            is_right(r, i % 40 ? ids : prompt(2), 460);
        if (i % 3 == 0)
            for_files(".bank", drop);
    }
    ck_assert_int_eq(for_files(".damaged", NULL), 0);
    ck_assert_int_gt(n_there, 0);
    for (int i = 0; i < 4; i++)
        cb_session_close(s[i]);
}
END_TEST

/* Looks up and remembers prompts; 0 if all went well. A child process has no part in the test's
 * own messages, so nothing is asserted. */
static int work(const struct setting *r, int which)
{
    const struct cb_session_params p = params_of(r);
    int failed = 0;

    for (int i = 0; i < 12 && !failed; i++) {
        const int32_t *t = prompt((i * (which + 1)) % 5);
        const int n = 300 + i % 3 * 100;
        cb_session *s;
        int n_hit;
        if (cb_bank_dir_find(dir, m, &p, t, n, &s, &n_hit))
            return 1;
        failed = (n_hit < n && cb_session_prefill(s, t + n_hit, n - n_hit, NULL)) ||
                 (cb_bank_dir_put(dir, s) && !strstr(cb_error(), "holds the lock"));
        cb_session_close(s);
    }
    return failed;
}

/* Processes that look up, write and remove at once */
START_TEST(together)
{
    const struct setting *r = &cb_setting[0];
    pid_t pid[3];
    int status;

    remember(r, prompt(0), 300);
    open_dir(3 * bank_bytes());
    for (int p = 0; p < 3; p++) {
        pid[p] = fork();
        if (!pid[p])
            _exit(work(r, p));
    }
    for (int p = 0; p < 3; p++) {
        ck_assert_int_eq(waitpid(pid[p], &status, 0), pid[p]);
        ck_assert(WIFEXITED(status) && !WEXITSTATUS(status));
    }
    for_files(".bank", is_good);
    for (int i = 0; i < 5; i++)
        is_right(r, prompt(i), 400);
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
    tcase_add_test(c, damaged);
    tcase_add_test(c, orphans);
    tcase_add_loop_test(c, passing_faults, 0, 2 * FAULT_KINDS);
    tcase_add_loop_test(c, room_and_passing_faults, 0, 2);
    tcase_add_test(c, no_descriptors);
    tcase_add_test(c, replaced_meanwhile);
    tcase_add_test(c, putting_aside_is_said);
    tcase_add_test(c, many_turns);
    tcase_add_test(c, no_folder);
    tcase_add_test(c, a_held_lock);
    tcase_add_test(c, no_such_folder);
    tcase_add_test(c, a_full_disk);
    tcase_add_test(c, a_limit);
    tcase_add_test(c, a_limit_with_continued_files);
    tcase_add_test(c, strangers);
    tcase_add_test(c, killed);
    tcase_add_test(c, together);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
