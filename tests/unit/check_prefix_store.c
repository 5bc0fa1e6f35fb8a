/* SPDX-License-Identifier: MIT */
/* check_prefix_store.c - documents that clients have put up front: whole, or not there. */
#include <check.h>

#include "base/err.h"
#include "base/json_lenient.h"
#include "kit/faults.h"
#include "kit/suite.h"
#include "serve/exchange.h"
#include "serve/prefix_store.h"

enum { MOST = 1 << 20 };

static json_t *document(void)
{
    json_t *list = json_array();

    for (int i = 0; i < 3; i++)
        cb_json_add(&list, json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "role", "user", "content",
                                     "a \"quoted\" text", "parts", "type", "text", "text", "b"));
    ck_assert_ptr_nonnull(list);
    return list;
}

/* What is kept, and what is handed out again, lacks nothing, whichever allocation fails. */
START_TEST(whole_or_not_there)
{
    json_t *want = document(), *got, *list;
    struct prefix_store *b;
    char id[CB_DOCUMENT_ID];
    int failed = 1, n_told = 0, n_kept;

    cb_json_watch();
    for (int nth = 1; failed; nth++) {
        ck_assert_int_eq(cb_prefix_store_new(MOST, &b), CB_OK);
        cb_fault_at(FAULT_ALLOC, nth, 0);
        const int rc = cb_prefix_store_add(b, want, "name", 7, id);
        got = rc ? NULL : cb_prefix_store_messages(b, id);
        failed = cb_fault_end();
        list = cb_prefix_store_list(b);
        n_kept = (int)json_array_size(list);
        ck_assert_int_eq(n_kept, !rc);
        ck_assert_msg(!got || json_equal(got, want), "allocation %d", nth);
        n_told += rc || !got;
        if (!rc && !got) { /* it could not be copied then */
            got = cb_prefix_store_messages(b, id);
            ck_assert_msg(json_equal(got, want), "allocation %d, kept", nth);
        }
        json_decref(list);
        json_decref(got);
        cb_prefix_store_free(b);
        ck_assert_int_lt(nth, 10000);
    }
    ck_assert_int_gt(n_told, 50);
    json_decref(want);
}
END_TEST

/* Names that anybody could guess are none. */
START_TEST(no_name_without_random_numbers)
{
    json_t *want = document();
    struct prefix_store *b;
    struct id_source ids;
    char id[CB_DOCUMENT_ID] = "", other[CB_DOCUMENT_ID];

    cb_json_watch();
    ck_assert_int_eq(cb_prefix_store_new(MOST, &b), CB_OK);
    cb_fault_at(FAULT_DRAW, 1, 1);
    ck_assert_int_eq(cb_prefix_store_add(b, want, "name", 7, id), CB_EIO);
    ck_assert_int_eq(cb_ids_open(&ids), CB_EIO);
    ck_assert_int_eq(cb_fault_end(), 2);
    ck_assert_str_eq(id, "");
    ck_assert_int_eq(cb_prefix_store_add(b, want, "name", 7, id), CB_OK);
    ck_assert_int_eq(cb_prefix_store_add(b, want, "name", 7, other), CB_OK);
    ck_assert_str_ne(id, other);
    cb_prefix_store_free(b);
    json_decref(want);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("prefix_store");
    TCase *t = tcase_create("documents");

    tcase_add_test(t, whole_or_not_there);
    tcase_add_test(t, no_name_without_random_numbers);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
