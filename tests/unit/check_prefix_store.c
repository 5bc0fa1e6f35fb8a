/* SPDX-License-Identifier: MIT */
/* check_prefix_store.c - documents that clients have put up front: whole, or not there. */
#include <check.h>

#include "base/err.h"
#include "base/json_lenient.h"
#include "kit/faults.h"
#include "kit/suite.h"
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

int main(void)
{
    Suite *s = suite_create("prefix_store");
    TCase *t = tcase_create("documents");

    tcase_add_test(t, whole_or_not_there);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
