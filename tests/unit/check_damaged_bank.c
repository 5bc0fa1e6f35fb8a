/* SPDX-License-Identifier: MIT */
/* check_damaged_bank.c - a damaged or foreign file is refused, and whatever its numbers say,
 * nothing outside the stores is touched. */
#include <fcntl.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "bank/bank_file.h"
#include "saved.h"

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

int main(void)
{
    Suite *s = suite_create("damaged bank");
    TCase *c = tcase_create("damaged bank");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, truncated);
    tcase_add_loop_test(c, flipped_bits, 2, 5);
    tcase_add_loop_test(c, hostile_counts, 0, cb_n_setting);
    tcase_add_test(c, counts_near_the_largest);
    tcase_add_test(c, contexts_near_the_largest);
    tcase_add_test(c, not_a_bank);
    tcase_add_test(c, newer_formats);
    tcase_add_test(c, another_model);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
