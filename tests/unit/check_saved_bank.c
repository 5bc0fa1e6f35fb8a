/* SPDX-License-Identifier: MIT */
/* check_saved_bank.c - a session that was saved and loaded goes on, to the bit, as if it had never
 * left memory; a damaged or foreign file is refused, and whatever its numbers say, nothing outside
 * the stores is touched. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "bank/bank_file.h"
#include "ctxbank.h"
#include "device/prepacked.h"
#include "engine/session.h"
#include "kit/folder.h"
#include "kit/isa.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_PROMPT = 300, N_STEP = 12, N_CTX = 640, N_IDS = 1024 };

static cb_model *m;
static int32_t ids[N_IDS];
static char path[4096];

static void setup(void)
{
    struct tiny t = cb_tiny_get("qwen2");
    uint32_t x = 7;

    m = cb_toy_model(&t, "cpu", 2);
    for (int i = 0; i < N_IDS; i++) {
        x = 1103515245u * x + 12345u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)cb_n_vocab(m));
    }
    snprintf(path, sizeof path, "%s/bank", cb_folder_make("saved"));
}

static void teardown(void)
{
    cb_model_close(m);
    cb_folder_remove();
}

static void prefill(cb_session *s, int from, int n)
{
    ck_assert_ok(cb_session_prefill(s, ids + from, n, NULL));
}

static void steps(cb_session *s, int from, int n)
{
    for (int i = from; i < from + n; i++)
        ck_assert_ok(cb_session_decode(s, ids[i]));
}

static void same(const cb_session *a, const cb_session *b, const char *what)
{
    struct cb_memory x, y;

    cb_setting_same(m, a, b, what);
    cb_session_memory(a, &x);
    cb_session_memory(b, &y);
    ck_assert_msg(x.kv_bytes == y.kv_bytes && x.kept_min == y.kept_min &&
                      x.kept_max == y.kept_max && x.kv_peak_bytes == y.kv_peak_bytes,
                  "%s: %llu and %llu bytes", what, (unsigned long long)x.kv_bytes,
                  (unsigned long long)y.kv_bytes);
}

static void save(const cb_session *s)
{
    ck_assert_ok(cb_session_save(s, path));
    ck_assert_ok(cb_bank_verify(path));
}

static cb_session *load(int n_ctx)
{
    cb_session *s;

    ck_assert_ok(cb_session_load(m, path, n_ctx, &s));
    return s;
}

static cb_session *filled(const struct setting *r, int when)
{
    cb_session *s = cb_setting_session(m, r, N_CTX);

    prefill(s, 0, N_PROMPT);
    if (when > 0)
        steps(s, N_PROMPT, N_STEP);
    if (when > 1)
        prefill(s, 400, 60);
    return s;
}

/* After a prompt, after generated tokens, after a second prompt */
START_TEST(loaded_goes_on)
{
    const struct setting *r = &cb_setting[_i];

    for (int when = 0; when < 3; when++) {
        cb_session *s, *l;
        if (CB_SLOWED > 1 && when != _i % 3)
            continue;
        s = filled(r, when);
        save(s);
        l = load(0);
        same(s, l, r->policy);
        steps(s, 500, N_STEP);
        steps(l, 500, N_STEP);
        same(s, l, r->policy);
        prefill(s, 550, 70);
        prefill(l, 550, 70);
        same(s, l, r->policy);
        steps(s, 630, N_STEP);
        steps(l, 630, N_STEP);
        same(s, l, r->policy);
        cb_session_close(l);
        l = load(0); /* writing to what was mapped has not changed the file */
        ck_assert_int_eq(cb_bank_verify(path), CB_OK);
        cb_session_close(l);
        cb_session_close(s);
    }
}
END_TEST

/* Saved on one instruction set, loaded on another: rounded once, so about the same logits. A block
 * that is read in a wrong order gives others. */
static void moves(const struct setting *r, const char *from, const char *to)
{
    const struct tiny t = cb_tiny_get("qwen2");
    const struct cb_model_params a = { .n_threads = 2, .isa = from },
                                 b = { .n_threads = 2, .isa = to };
    cb_model *mine = m, *there = cb_toy_model_with(&t, &b);
    cb_session *s, *l;
    double most = 0, off = 0;

    m = cb_toy_model_with(&t, &a);
    s = filled(r, 1);
    save(s);
    ck_assert_msg(!cb_session_load(there, path, 0, &l), "%s: %s", r->policy, cb_error());
    steps(s, 500, 1);
    steps(l, 500, 1);
    for (int i = 0; i < cb_n_vocab(m); i++) {
        const double x = (double)cb_session_logits(s)[i], y = (double)cb_session_logits(l)[i];
        most = fabs(x) > most ? fabs(x) : most;
        off = fabs(x - y) > off ? fabs(x - y) : off;
    }
    ck_assert_msg(off < 0.02 * most, "%s, %s to %s: %g of %g", r->policy, from, to, off, most);
    prefill(l, 550, 70);
    steps(l, 630, N_STEP);
    cb_session_close(l);
    cb_session_close(s);
    cb_model_close(m);
    cb_model_close(there);
    m = mine;
}

START_TEST(another_instruction_set)
{
    static const struct setting list[] = { { "full", "f16", "dense", 1 },
                                           { "full", "bf16", "dense", 1 },
                                           { "full", "q8_0", "dense", 1 },
                                           { "full", "f32", "dense", 1 },
                                           { "h2o:budget=140", "f16", "dense", 0 } };
    const char *isa[N_ISA];
    int n = 0;

    for (int i = 0; i < N_ISA; i++) {
        struct device *d = cb_isa_open(i, 1);
        if (d && (i == ISA_SCALAR || cb_prepacked_panel(cb_isa[i])))
            isa[n++] = cb_isa[i];
        cb_device_close(d);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (i != j && (CB_SLOWED == 1 || j == (i + 1) % n))
                moves(&list[_i], isa[i], isa[j]);
    if (n == 1)
        cb_skip("only one instruction set");
}
END_TEST

/* Rows that are asked for before they are read are the same rows. */
START_TEST(asked_for)
{
    const struct setting *r = &cb_setting[_i];
    cb_session *s = filled(r, 0), *l;

    save(s);
    l = load(0);
    l->attention.cold_pages = 1000;
    steps(s, 500, N_STEP);
    steps(l, 500, N_STEP);
    same(s, l, r->policy);
    prefill(s, 550, 70);
    prefill(l, 550, 70);
    same(s, l, r->policy);
    if (l->mapped)
        ck_assert_int_gt(l->attention.cold_pages, 900);
    cb_session_close(l);
    cb_session_close(s);
}
END_TEST

START_TEST(another_capacity)
{
    cb_session *s = filled(&cb_setting[0], 1), *l, *none;

    save(s);
    l = load(4 * N_CTX);
    ck_assert_int_eq(cb_session_n_ctx(l), 4 * N_CTX);
    steps(s, 500, N_STEP);
    steps(l, 500, N_STEP);
    same(s, l, "larger");
    ck_assert_int_eq(cb_session_load(m, path, 100, &none), CB_EFULL);
    ck_assert_ptr_null(none);
    ck_assert_msg(strstr(cb_error(), "context") != NULL, "%s", cb_error());
    cb_session_close(s);
    cb_session_close(l);
}
END_TEST

START_TEST(an_empty_session)
{
    cb_session *s = cb_setting_session(m, &cb_setting[0], N_CTX), *l;

    save(s);
    l = load(0);
    ck_assert_int_eq(cb_session_len(l), 0);
    prefill(s, 0, 50);
    prefill(l, 0, 50);
    same(s, l, "empty");
    cb_session_close(s);
    cb_session_close(l);
}
END_TEST

/* ---- files that are not what they seem ---- */

static char *contents(size_t *n)
{
    struct stat st;
    const int fd = open(path, O_RDONLY);
    char *b;

    ck_assert(fd >= 0 && !fstat(fd, &st));
    *n = (size_t)st.st_size;
    b = malloc(*n);
    ck_assert_int_eq(read(fd, b, *n), (ssize_t)*n);
    close(fd);
    return b;
}

static void put(const char *b, size_t n)
{
    FILE *f = fopen(path, "wb");

    ck_assert(f && fwrite(b, 1, n, f) == n && !fclose(f));
}

/* Writes b[at..at+n-1] over the file's; banks are padded, so whole ones take long. */
static void patch(const char *b, size_t at, size_t n)
{
    const int fd = open(path, O_WRONLY);

    ck_assert(fd >= 0 && pwrite(fd, b + at, n, (off_t)at) == (ssize_t)n && !close(fd));
}

static void refused(int status, const char *what)
{
    cb_session *s;

    ck_assert_msg(cb_session_load(m, path, 0, &s) == status, "%s: not %d: %s", what, status,
                  cb_error());
    ck_assert_ptr_null(s);
    ck_assert_msg(strstr(cb_error(), path) != NULL, "%s", cb_error());
}

START_TEST(truncated)
{
    cb_session *s = filled(&cb_setting[2], 1);
    size_t n;
    char *b;

    save(s);
    b = contents(&n);
    for (size_t at = 0; at < n; at += at < 200 ? 7 : n / 61) {
        put(b, at);
        refused(CB_EFORMAT, "truncated");
        ck_assert_int_eq(cb_bank_verify(path), CB_EFORMAT);
    }
    free(b);
    cb_session_close(s);
}
END_TEST

/* A flipped bit is found, or lies in the space between areas, which nothing reads. */
START_TEST(flipped_bits)
{
    cb_session *s = filled(&cb_setting[_i], 2), *l;
    uint32_t x = 99;
    size_t n;
    char *b;
    int n_found = 0;

    save(s);
    b = contents(&n);
    for (int i = 0; i < 60; i++) {
        size_t at;
        x = 1103515245u * x + 12345u;
        at = ((size_t)x * 4096 + (x >> 7)) % n;
        if (i < 20)
            at = (size_t)i * 4; /* the header */
        b[at] ^= (char)(1 << (x >> 29));
        patch(b, at, 1);
        if (cb_session_load(m, path, 0, &l)) {
            n_found++;
        } else {
            same(s, l, "between areas");
            cb_session_close(l);
        }
        b[at] ^= (char)(1 << (x >> 29));
        patch(b, at, 1);
    }
    ck_assert_int_ge(n_found, 20);
    free(b);
    cb_session_close(s);
}
END_TEST

/* Opens the file and computes with it, if it is not refused. */
static void try_file(const char *policy)
{
    cb_session *l;

    if (cb_session_load_as(m, path, 0, policy, &l))
        return;
    if (!cb_session_decode(l, ids[1]))
        (void)cb_session_prefill(l, ids, 40, NULL);
    cb_session_close(l);
}

/* Someone changes the numbers and puts the checksums right. Refused, or used: never a crash. */
START_TEST(hostile_counts)
{
    cb_session *s = filled(&cb_setting[_i], 2);
    struct bank_area *table;
    uint64_t table_at, n_area;
    uint32_t x = 5;
    size_t n;
    char *b;

    save(s);
    b = contents(&n);
    memcpy(&table_at, b + 24, sizeof table_at);
    memcpy(&n_area, b + 32, sizeof n_area);
    table = (struct bank_area *)(void *)(b + table_at);
    for (int i = 0; i < (CB_SLOWED > 1 ? 15 : cb_test_cases(150)); i++) {
        static const int32_t odd[] = { -1, 0, 1, 2, 127, 128, 129, 400, 640, 641, 1 << 30, -2 };
        uint64_t a, hash;
        int32_t old, *at;
        x = 1103515245u * x + 12345u;
        a = i % 3 ? 0 : (x >> 8) % n_area; /* mostly the counts */
        if (table[a].kind == AREA_KEYS || table[a].kind == AREA_VALUES)
            continue;
        at = (int32_t *)(void *)(b + table[a].at) + (x >> 4) % (table[a].bytes / 4);
        old = *at;
        *at = odd[(x >> 24) % (sizeof odd / sizeof *odd)];
        table[a].hash = XXH3_64bits(b + table[a].at, table[a].bytes);
        hash = XXH3_64bits(table, n_area * sizeof *table);
        memcpy(b + 40, &hash, sizeof hash);
        hash = XXH3_64bits(b, 72);
        memcpy(b + 72, &hash, sizeof hash);
        patch(b, 0, 80);
        patch(b, table_at, n_area * sizeof *table);
        patch(b, (size_t)((char *)at - b), sizeof *at);
        try_file(NULL);
        try_file(i % 2 ? "full" : "sieve:budget=40,sink=4,recent=8");
        *at = old;
        patch(b, (size_t)((char *)at - b), sizeof *at);
        table[a].hash = XXH3_64bits(b + table[a].at, table[a].bytes);
    }
    free(b);
    cb_session_close(s);
}
END_TEST

/* The count of tokens is compared with the file before it sizes anything. */
START_TEST(counts_near_the_largest)
{
    static const int32_t seen[] = { INT32_MAX, INT32_MAX / 4 * 4, 1 << 30,
                                    1 << 20,   N_PROMPT + 1,      N_PROMPT - 1 };
    cb_session *s = filled(&cb_setting[0], 0);
    struct bank_area *table;
    uint64_t table_at, hash;
    size_t n;
    char *b;

    save(s);
    b = contents(&n);
    memcpy(&table_at, b + 24, sizeof table_at);
    table = (struct bank_area *)(void *)(b + table_at);
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        memcpy(b + table[0].at, &seen[i], sizeof seen[i]);
        table[0].hash = XXH3_64bits(b + table[0].at, table[0].bytes);
        memcpy(&n, b + 32, sizeof n);
        hash = XXH3_64bits(table, n * sizeof *table);
        memcpy(b + 40, &hash, sizeof hash);
        hash = XXH3_64bits(b, 72);
        memcpy(b + 72, &hash, sizeof hash);
        patch(b, 0, 80);
        patch(b, table_at, n * sizeof *table);
        patch(b, table[0].at, table[0].bytes);
        refused(CB_EFORMAT, "tokens");
        ck_assert_msg(strstr(cb_error(), "its tokens") != NULL, "%s", cb_error());
    }
    free(b);
    cb_session_close(s);
}
END_TEST

START_TEST(contexts_near_the_largest)
{
    static const int n_ctx[] = { INT32_MAX, INT32_MAX - 200, (1 << 30) + 1, -1 };
    cb_session *s = filled(&cb_setting[0], 0), *l;

    save(s);
    for (size_t i = 0; i < sizeof n_ctx / sizeof *n_ctx; i++)
        ck_assert_int_eq(cb_session_load(m, path, n_ctx[i], &l), CB_EARG);
    cb_session_close(s);
}
END_TEST

static int mode_of(const char *file)
{
    struct stat st;

    ck_assert_int_eq(stat(file, &st), 0);
    return (int)(st.st_mode & 07777);
}

/* A new file is its owner's; one that is replaced keeps its mode. */
START_TEST(private)
{
    cb_session *s = filled(&cb_setting[0], 0);

    umask(0022);
    save(s);
    ck_assert_int_eq(mode_of(path), 0600);
    ck_assert_int_eq(chmod(path, 0640), 0);
    save(s);
    ck_assert_int_eq(mode_of(path), 0640);
    cb_session_close(s);
}
END_TEST

START_TEST(not_a_bank)
{
    cb_session *s;

    put("", 0);
    refused(CB_EFORMAT, "empty");
    put("GGUF, or whatever it is, of more than eighty bytes: this is text, not a bank of anything, "
        "and so on",
        96);
    refused(CB_EFORMAT, "text");
    unlink(path);
    refused(CB_EIO, "missing");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    refused(CB_EFORMAT, "a pipe");
    s = filled(&cb_setting[0], 0);
    ck_assert_int_eq(cb_session_save(s, path), CB_EARG); /* it is not replaced */
    cb_session_close(s);
}
END_TEST

START_TEST(newer_formats)
{
    cb_session *s = filled(&cb_setting[0], 0);
    uint64_t hash;
    size_t n;
    char *b;

    save(s);
    b = contents(&n);
    b[8] = BANK_FILE_VERSION + 1;
    hash = XXH3_64bits(b, 72);
    memcpy(b + 72, &hash, sizeof hash);
    put(b, n);
    refused(CB_EUNSUPPORTED, "a newer version");
    free(b);
    cb_session_close(s);
}
END_TEST

/* Shape and vocabulary are the same, weights are not. */
START_TEST(another_model)
{
    struct tiny t = cb_tiny_get("qwen2");
    cb_session *s = filled(&cb_setting[0], 0), *l;
    cb_model *other;

    t.seed += 1;
    other = cb_toy_model(&t, "cpu", 2);
    save(s);
    ck_assert_int_eq(cb_session_load(other, path, 0, &l), CB_EUNSUPPORTED);
    ck_assert_msg(strstr(cb_error(), "another model") != NULL, "%s", cb_error());
    cb_model_close(other);
    cb_session_close(s);
}
END_TEST

START_TEST(descriptions)
{
    cb_session *s = filled(&cb_setting[5], 1);
    char *json;

    save(s);
    ck_assert_int_eq(cb_bank_describe(path, &json), CB_OK);
    ck_assert_msg(strstr(json, cb_setting[5].policy) != NULL, "%s", json);
    ck_assert_msg(strstr(json, "\"tokens\": 312") != NULL, "%s", json);
    free(json);
    cb_session_close(s);
}
END_TEST

/* The first words stand in the description: none of them, control bytes neither, harms the file. */
START_TEST(any_first_words)
{
    enum { N = 24 };
    int32_t id[N];

    for (int from = 0; from < cb_n_vocab(m); from += N) {
        cb_session *s = cb_setting_session(m, &cb_setting[0], N_CTX), *l;
        for (int i = 0; i < N; i++)
            id[i] = (int32_t)((from + i) % cb_n_vocab(m));
        ck_assert_ok(cb_session_prefill(s, id, N, NULL));
        save(s);
        l = load(0);
        same(s, l, "tokens of any bytes");
        cb_session_close(l);
        cb_session_close(s);
    }
}
END_TEST

/* ---- writing is all or nothing ---- */

static int n_files(void)
{
    char cmd[4200];
    FILE *p;
    int n = -1;

    snprintf(cmd, sizeof cmd, "ls -1 %s* | wc -l", path);
    p = popen(cmd, "r");
    ck_assert(p && fscanf(p, "%d", &n) == 1);
    pclose(p);
    return n;
}

/* A file size limit stands for a full disk: the old file stays, and nothing beside it. */
START_TEST(a_full_disk)
{
    cb_session *s = filled(&cb_setting[0], 0), *more = filled(&cb_setting[0], 2), *l;
    struct rlimit was, small;

    save(s);
    getrlimit(RLIMIT_FSIZE, &was);
    signal(SIGXFSZ, SIG_IGN);
    small = was;
    for (rlim_t bytes = 100; bytes < 400000; bytes = bytes * 5 + 1) {
        small.rlim_cur = bytes;
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
        ck_assert_int_eq(cb_session_save(more, path), CB_EIO);
        ck_assert_msg(strstr(cb_error(), path) != NULL, "%s", cb_error());
    }
    setrlimit(RLIMIT_FSIZE, &was);
    ck_assert_int_eq(n_files(), 1);
    l = load(0);
    same(s, l, "the old file");
    cb_session_close(l);
    cb_session_close(s);
    cb_session_close(more);
}
END_TEST

/* Killed at any moment, the file is the old one or the new one. */
START_TEST(killed)
{
    cb_session *a = filled(&cb_setting[0], 0), *b = filled(&cb_setting[0], 2), *l;
    int n_new = 0;

    for (int i = 0; i < 40; i++) {
        pid_t pid;
        save(a);
        pid = fork();
        if (!pid) {
            (void)cb_session_save(b, path);
            _exit(0);
        }
        usleep((useconds_t)(i * 150));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        l = load(0);
        n_new += cb_session_len(l) != cb_session_len(a);
        same(l, cb_session_len(l) == cb_session_len(a) ? a : b, "old or new");
        cb_session_close(l);
    }
    ck_assert_int_lt(n_new, 41);
    cb_session_close(a);
    cb_session_close(b);
}
END_TEST

/* ---- a file that changes while it is in use ---- */

enum { N_LONG = 560, N_CUT = 5 };

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    if (!cb_model_page_lost(m, info->si_addr))
        _exit(99);
}

static void catch_bus_errors(void)
{
    struct sigaction sa = { .sa_flags = SA_SIGINFO };

    sa.sa_sigaction = on_bus_error;
    sigemptyset(&sa.sa_mask);
    ck_assert_int_eq(sigaction(SIGBUS, &sa, NULL), 0);
}

static const struct setting in_use[] = {
    { .policy = "full", .type = "f32" },
    { .policy = "quest:budget=64,page=16", .type = "f32" },
    { .policy = "full", .type = "f16" },
};
enum { N_IN_USE = sizeof in_use / sizeof *in_use };

/* A session whose rows lie in the file `path` */
static cb_session *mapped(const struct setting *r)
{
    cb_session *s = cb_setting_session(m, r, N_CTX), *l;

    prefill(s, 0, N_LONG);
    save(s);
    cb_session_close(s);
    l = load(0);
    ck_assert_msg(l->mapped != NULL, "%s, %s", r->policy, r->type);
    return l;
}

/* To nothing, to a page, within a page, by its end, and to a bank of the same length */
static void damage(int how)
{
    struct stat st;
    char c = 1;
    int fd;

    ck_assert_int_eq(stat(path, &st), 0);
    if (how < 4) {
        const off_t to[] = { 0, st.st_size / 2 / 4096 * 4096, st.st_size / 2 / 4096 * 4096 + 100,
                             st.st_size - 1 };
        ck_assert_int_eq(truncate(path, to[how]), 0);
        return;
    }
    fd = open(path, O_WRONLY); /* the checksum of another one */
    ck_assert(fd >= 0 && pwrite(fd, &c, 1, 72) == 1 && pwrite(fd, &c, 1, 73) == 1 && !close(fd));
}

static void is_lost(int status)
{
    ck_assert_msg(status == CB_EIO, "%d: %s", status, cb_error());
    ck_assert_msg(strstr(cb_error(), path) && strstr(cb_error(), "while it was in use"), "%s",
                  cb_error());
}

/* The session is empty, and as good as a new one. */
static void is_as_new(cb_session *l, const struct setting *r)
{
    cb_session *s = cb_setting_session(m, r, N_CTX);

    ck_assert_int_eq(cb_session_len(l), 0);
    prefill(s, 100, N_LONG);
    prefill(l, 100, N_LONG);
    steps(s, 700, N_STEP);
    steps(l, 700, N_STEP);
    ck_assert_int_eq(cb_session_len(l), N_LONG + N_STEP);
    ck_assert_mem_eq(cb_session_logits(l), cb_session_logits(s),
                     (size_t)cb_n_vocab(m) * sizeof(float));
    cb_session_close(s);
}

/* Whatever reads the rows next fails, and never uses other rows. */
START_TEST(changed_in_use)
{
    const struct setting *r = &in_use[_i / N_CUT];
    cb_session *l, *f;

    catch_bus_errors();
    for (int how = 0; how < 3; how++) {
        l = mapped(r);
        steps(l, N_LONG, 2);
        damage(_i % N_CUT);
        if (how == 1)
            is_lost(cb_session_fork(l, &f));
        if (how == 2) {
            char *out = strdup(path);
            ck_assert_ptr_nonnull(out);
            out[strlen(out) - 1] = 'x';
            is_lost(cb_session_save(l, out));
            ck_assert_int_ne(access(out, F_OK), 0);
            free(out);
        }
        is_lost(how == 1 ? cb_session_prefill(l, ids, 20, NULL) : cb_session_decode(l, ids[3]));
        is_as_new(l, r);
        cb_session_close(l);
    }
}
END_TEST

/* Of a batch, the others get their tokens. */
START_TEST(changed_in_company)
{
    cb_session *s[3], *alone = cb_setting_session(m, &in_use[0], N_CTX);
    const int32_t next[] = { ids[5], ids[6], ids[7] };

    catch_bus_errors();
    s[0] = mapped(&in_use[0]);
    ck_assert_int_eq(unlink(path), 0); /* it stays as it is */
    s[1] = mapped(&in_use[1]);
    s[2] = cb_setting_session(m, &in_use[0], N_CTX);
    prefill(s[2], 0, N_LONG);
    prefill(alone, 0, N_LONG);
    damage(_i);
    is_lost(cb_decode_batch(s, next, 3));
    for (int i = 0; i < 3; i += 2) {
        ck_assert_int_eq(cb_session_len(s[i]), N_LONG + 1);
        ck_assert_int_eq(cb_session_truncate(alone, N_LONG), CB_OK);
        steps(alone, 5 + i, 1);
        ck_assert_mem_eq(cb_session_logits(s[i]), cb_session_logits(alone),
                         (size_t)cb_n_vocab(m) * sizeof(float));
    }
    is_as_new(s[1], &in_use[1]);
    ck_assert_int_eq(cb_decode_batch(s, next, 3), CB_OK);
    for (int i = 0; i < 3; i++)
        cb_session_close(s[i]);
    cb_session_close(alone);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("saved bank");
    TCase *c = tcase_create("saved bank");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, loaded_goes_on, 0, cb_n_setting);
    tcase_add_loop_test(c, another_instruction_set, 0, 5);
    tcase_add_loop_test(c, asked_for, 0, cb_n_setting);
    tcase_add_test(c, another_capacity);
    tcase_add_test(c, an_empty_session);
    tcase_add_test(c, truncated);
    tcase_add_loop_test(c, flipped_bits, 2, 5);
    tcase_add_loop_test(c, hostile_counts, 0, cb_n_setting);
    tcase_add_test(c, counts_near_the_largest);
    tcase_add_test(c, contexts_near_the_largest);
    tcase_add_test(c, private);
    tcase_add_test(c, not_a_bank);
    tcase_add_test(c, newer_formats);
    tcase_add_test(c, another_model);
    tcase_add_test(c, descriptions);
    tcase_add_test(c, any_first_words);
    tcase_add_test(c, a_full_disk);
    tcase_add_test(c, killed);
    tcase_add_loop_test(c, changed_in_use, 0, N_IN_USE * N_CUT);
    tcase_add_loop_test(c, changed_in_company, 0, N_CUT);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
