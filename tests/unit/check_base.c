/* SPDX-License-Identifier: MIT */
/* check_base.c - what every room stands on: printable text, growing arrays, lists of words, JSON
 * of any text, keyed hashes, files with an end. */
#include <check.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/siphash.h"
#include "base/utf8.h"
#include "base/words.h"
#include "kit/folder.h"
#include "kit/suite.h"

START_TEST(text_for_a_terminal)
{
    static const char *const rows[][2] = {
        { "plain text", "plain text" },
        { "\xC3\xA9\xE5\xA5\xBD\xF0\x9F\x98\x80", "\xC3\xA9\xE5\xA5\xBD\xF0\x9F\x98\x80" },
        { "a\x1b[31m\x7f\r\n\tb", "a?[31m???\tb" },
        { "\xC2\x80\xC2\x9F\xC2\xA0", "??\xC2\xA0" },
        { "\xFF\xC3", "??" },
        { "\xF0\x9F\x98", "???" },
        { "\xC0\x9B", "??" },
        { "", "" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char s[64];
        const size_t n = strlen(rows[i][0]);
        memcpy(s, rows[i][0], n + 1);
        s[cb_utf8_plain(s, n, "\t")] = '\0';
        ck_assert_str_eq(s, rows[i][1]);
    }
    ck_assert_int_eq(cb_fail(CB_EIO, "%s: %s", "a\x1b\xC2\x9B", "why\xFF"), CB_EIO);
    ck_assert_str_eq(cb_error(), "a??: why?");
    ck_assert_int_eq(cb_fail_in(CB_EIO, "a\x1b\xC2\x9B"), CB_EIO);
    ck_assert_str_eq(cb_error(), "a??: why?");
    cb_fail_in(CB_EIO, "b\x1b");
    ck_assert_str_eq(cb_error(), "b?: a??: why?");
}
END_TEST

START_TEST(arrays_grow)
{
    double *list = NULL;
    char *text = NULL;
    size_t cap = 0, most = 0;

    for (size_t n = 0; n < 1000; n++) { /* a sanitizer sees an element that does not fit */
        ck_assert_int_eq(cb_grow_by_one(&list, n, sizeof *list), CB_OK);
        list[n] = (double)n;
        if (n == 512) /* a list that shrinks keeps its elements */
            ck_assert_int_eq(cb_grow_by_one(&list, n, sizeof *list), CB_OK);
    }
    for (size_t n = 0; n < 1000; n++)
        ck_assert_double_eq(list[n], (double)n);
    for (size_t n = 1; n < 1000; n += n / 3 + 1) {
        ck_assert_int_eq(cb_grow(&text, &cap, n, 3), CB_OK);
        ck_assert_uint_ge(cap, n);
        text[3 * n - 1] = 'x';
        most += cap;
        ck_assert_int_eq(cb_grow(&text, &cap, 0, 3), CB_OK); /* it never shrinks */
        most -= cap;
    }
    ck_assert_uint_eq(most, 0);
    ck_assert_uint_eq(cb_grown_cap(100, 101), 200);
    ck_assert_uint_eq(cb_grown_cap(100, 500), 500);
    most = cap;
    ck_assert_int_eq(cb_grow(&text, &cap, SIZE_MAX / 2, 3), CB_ENOMEM);
    ck_assert_uint_eq(cap, most);
    text[3 * cap - 1] = 'y';
    free(text);
    free(list);
}
END_TEST

START_TEST(words_in_a_list)
{
    static const char *const all[] = { "one", "", "three", "f" };
    const char *list = "one,,three,f,", *word;
    size_t n;
    int i = 0;

    for (; (word = cb_word(&list, ',', &n)); i++) {
        ck_assert_uint_eq(n, strlen(all[i]));
        ck_assert(!memcmp(word, all[i], n));
    }
    ck_assert_int_eq(i, 4);
    list = NULL;
    ck_assert_ptr_null(cb_word(&list, ',', &n));
    ck_assert_int_eq(cb_word_index("one two three", ' ', "three", 5), 2);
    ck_assert_int_eq(cb_word_index("one two three", ' ', "three", 4), -1);
    ck_assert_int_eq(cb_word_index("one two three", ' ', "ne", 2), -1);
    ck_assert_int_eq(cb_word_index("one two", ' ', "", 0), -1);
    ck_assert_int_eq(cb_word_index(NULL, ' ', "one", 3), -1);
    ck_assert(cb_begins("policy x", "policy ") && cb_begins("x", ""));
    ck_assert(!cb_begins("policy", "policy ") && !cb_begins("", "x"));
}
END_TEST

START_TEST(json_that_cannot_be_made)
{
    json_t *a = json_array(), *j = cb_json_text("a\xFF\0b", 4);

    ck_assert_uint_eq(json_string_length(j), 6);
    ck_assert_mem_eq(json_string_value(j), "a\xEF\xBF\xBD\0b", 6);
    cb_json_add(&a, j);
    cb_json_add(&a, cb_json_real(NAN));
    ck_assert_uint_eq(json_array_size(a), 2);
    ck_assert(json_is_null(json_array_get(a, 1)));
    cb_json_add(&a, json_real(INFINITY)); /* NULL: the list is lost as a whole, and no item alone */
    ck_assert_ptr_null(a);
    cb_json_add(&a, json_integer(1));
    ck_assert_ptr_null(a);
    j = json_object();
    cb_json_set(&j, "list", a);
    ck_assert_ptr_null(j);
}
END_TEST

/* Of CPython 3.11's hash() of bytes(range(n)) for n = 1 to 19, whose key is 0 with PYTHONHASHSEED=0
 */
/* Bytes that jansson holds, as malloc counts them */
static size_t held;
enum { MALLOC_OWN = 8 };

static void *count_in(size_t n)
{
    void *p = malloc(n);

    held += malloc_usable_size(p) + MALLOC_OWN;
    return p;
}

static void count_out(void *p)
{
    held -= p ? malloc_usable_size(p) + MALLOC_OWN : 0;
    free(p);
}

/* A list of one piece many times takes what was told from its text, and not half of it. */
START_TEST(json_costs_what_is_told)
{
    static const char *const piece[] = { "1",
                                         "-2.5e3",
                                         "null",
                                         "{}",
                                         "[]",
                                         "\"\"",
                                         "\"{[,:\\\"{[,:\"",
                                         "[[1],[2,\"three\"]]",
                                         "{\"a\":1}",
                                         "{\"a\":[],\"b\":{},\"c\":\"\",\"d\":null,\"e\":1.5}" };

    json_set_alloc_funcs(count_in, count_out);
    for (size_t i = 0; i < sizeof piece / sizeof *piece; i++) {
        struct buf text = { 0 };
        size_t cost;
        json_t *j;
        cb_buf_text(&text, "[0");
        for (int k = 0; k < 1100; k++)
            cb_buf_print(&text, ", %s", piece[i]);
        cb_buf_text(&text, "]");
        held = 0;
        j = json_loadb(text.s, text.n, 0, NULL);
        cost = cb_json_cost(text.s, text.n);
        ck_assert(j && json_array_size(j) == 1101);
        if (CB_SLOWED == 1) { /* the sanitizer's malloc counts other bytes */
            ck_assert_msg(held <= cost, "%s: %zu of %zu", piece[i], held, cost);
            ck_assert_msg(strstr(piece[i], "null") || 2 * held >= cost, "%s: %zu of %zu", piece[i],
                          held, cost);
        }
        json_decref(j);
        ck_assert_uint_eq(held, 0);
        cb_buf_free(&text);
    }
    json_set_alloc_funcs(malloc, free);
    ck_assert_uint_eq(cb_json_cost("", 0), 0);
    ck_assert_uint_eq(cb_json_cost("\"", 1), 81);
    ck_assert_uint_eq(cb_json_cost("\"\\", 2), 82);
}
END_TEST

START_TEST(hashes_are_siphash)
{
    static const uint64_t of[] = {
        0x68a914128e01e473, 0x010bac45c41e3669, 0x4d4c9a4a8ef6e0ad, 0x7cc43f98813e4dbd,
        0x5abe2169dff36275, 0xe3c25f87624f1cdb, 0x2f098ab0c751325a, 0xead411e67ebe2eea,
        0x75927f9d95124362, 0xaf9f77a65ab51a1d, 0xfe64ce8b6617fcff, 0xa6baf4fb0f9fe1c2,
        0xa0cf3211850f8e0d, 0x7f86049379fbfe67, 0xf30eb725bb91c9ea, 0x8972188433a5c5b7,
        0x4883c49a2c009c1d, 0xadc2c0b63044067d, 0x091f4a3329f87d19,
    };
    const struct hash_key zero = { { 0 } }, one = cb_hash_key(), two = cb_hash_key();
    unsigned char bytes[20];
    uint64_t word;

    for (int i = 0; i < 20; i++)
        bytes[i] = (unsigned char)i;
    for (size_t n = 1; n < 20; n++)
        ck_assert_uint_eq(cb_siphash(&zero, bytes, n), of[n - 1]);
    memcpy(&word, bytes, 8);
    ck_assert_uint_eq(cb_siphash_word(&zero, word), of[7]);
    ck_assert_uint_ne(cb_siphash(&one, bytes, 8), cb_siphash(&two, bytes, 8));
}
END_TEST

START_TEST(files_have_an_end)
{
    struct buf b = { 0 };
    FILE *f;

    cb_folder_make("base");
    f = fopen(cb_folder_put("lines", "one\n\nlast"), "r");
    ck_assert_int_eq(cb_file_line(f, "lines", &b), 1);
    ck_assert_str_eq(b.s, "one\n");
    ck_assert_int_eq(cb_file_line(f, "lines", &b), 1);
    ck_assert_str_eq(b.s, "\n");
    ck_assert_int_eq(cb_file_line(f, "lines", &b), 1);
    ck_assert_str_eq(b.s, "last");
    ck_assert_int_eq(cb_file_line(f, "lines", &b), 0);
    fclose(f);
    cb_buf_clear(&b);
    ck_assert_int_eq(cb_file_read_path(cb_folder_put("empty", ""), &b), 0);
    ck_assert_str_eq(b.s, "");
    ck_assert_int_eq(cb_file_read_path("/dev/zero", &b), CB_EFORMAT);
    ck_assert_str_eq(cb_error(), "/dev/zero: a text of more than 512 MiB");
    f = fopen("/dev/zero", "r");
    ck_assert_int_eq(cb_file_line(f, "zero", &b), CB_EFORMAT);
    ck_assert_str_eq(cb_error(), "zero: a line of more than 512 MiB");
    fclose(f);
    cb_buf_free(&b);
    cb_folder_remove();
}
END_TEST

/* ---- the runner of all test programs ---- */

START_TEST(passes)
{
    ck_assert(1);
}
END_TEST

START_TEST(skips)
{
    cb_skip("to see what is counted");
}
END_TEST

START_TEST(fails)
{
    ck_assert(0);
}
END_TEST

/* The exit status of a program with these tests. */
static int status_of(const TTest *const *test, int n)
{
    const pid_t child = fork();
    int status = -1;

    if (child == 0) {
        Suite *s = suite_create("inner");
        TCase *c = tcase_create("inner");
        if (!freopen("/dev/null", "w", stdout))
            _exit(1);
        for (int i = 0; i < n; i++)
            tcase_add_test(c, test[i]);
        suite_add_tcase(s, c);
        _exit(cb_suite_run_nofork(s));
    }
    ck_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* What was skipped is neither passed nor failed: a program that skipped all of its tests says so.
 */
START_TEST(skipped_is_not_passed)
{
    const TTest *const all_skip[] = { skips, skips }, *const one_skips[] = { skips, passes };
    const TTest *const one_fails[] = { skips, fails };

    ck_assert_int_eq(status_of(all_skip, 2), CB_SKIPPED);
    ck_assert_int_eq(status_of(one_skips, 2), EXIT_SUCCESS);
    ck_assert_int_eq(status_of(one_fails, 2), EXIT_FAILURE);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("base");
    TCase *c = tcase_create("base");

    tcase_set_timeout(c, 120);
    tcase_add_test(c, text_for_a_terminal);
    tcase_add_test(c, arrays_grow);
    tcase_add_test(c, words_in_a_list);
    tcase_add_test(c, json_that_cannot_be_made);
    tcase_add_test(c, json_costs_what_is_told);
    tcase_add_test(c, hashes_are_siphash);
    tcase_add_test(c, files_have_an_end);
    tcase_add_test(c, skipped_is_not_passed);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
