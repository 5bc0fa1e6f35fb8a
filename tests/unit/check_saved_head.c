/* SPDX-License-Identifier: MIT */
/* check_saved_head.c - saved banks and folders hold what the head for later tokens has: guesses go
 * on as if there had been no restart; files without a head, and damaged ones. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bank/bank_file.h"
#include "ctxbank.h"
#include "engine/mtp_drafter.h"
#include "engine/saved_head.h"
#include "engine/session.h"
#include "kit/folder.h"
#include "kit/headed.h"
#include "kit/suite.h"

enum { PROMPT = 200 };

static struct headed h;

/* The next guesses are the same, and so is what the head holds after more tokens. */
static void same_head(cb_session *a, cb_session *b)
{
    const struct mtp_drafter *x = cb_mtp_drafter_of(a), *y = cb_mtp_drafter_of(b);

    ck_assert_ptr_nonnull(y);
    for (int i = 0; i < 70; i++) {
        const int got = cb_headed_guess(a, h.ids[i], 2);
        ck_assert_int_eq(cb_headed_guess(b, h.ids[i], 2), got);
        ck_assert(!memcmp(x->draft, y->draft, (size_t)got * sizeof *x->draft));
        ck_assert_int_eq(x->s->bank.n_seen, y->s->bank.n_seen);
        ck_assert_ok(cb_session_decode(a, h.ids[i]));
        ck_assert_ok(cb_session_decode(b, h.ids[i]));
    }
}

static void save_and_open(cb_session *s, const char *path, cb_session **out)
{
    ck_assert_ok(cb_session_save(s, path));
    ck_assert_ok(cb_session_load(h.m, path, 0, out));
}

/* A restart leaves what the head holds: after a prompt, whose last state waits, and after generated
 * tokens, whose states do. */
START_TEST(saved_banks)
{
    static const char path[] = "check_mtp.bank";
    cb_session *a, *b;

    cb_headed_new(&h, _i / 2, HEAD_RANDOM, 4);
    a = cb_headed_session(&h, "full", 64);
    ck_assert_ok(cb_session_prefill(a, h.ids, PROMPT, NULL));
    for (int i = 0; _i % 2 && i < 20; i++)
        ck_assert_ok(cb_session_decode(a, h.ids[i]));
    save_and_open(a, path, &b);
    ck_assert_int_eq(cb_mtp_drafter_of(b)->n, _i % 2 ? 21 : 1);
    same_head(a, b);
    cb_session_close(b);
    ck_assert_ok(cb_session_truncate(a, PROMPT - 50)); /* a row is missing at the cut */
    save_and_open(a, path, &b);
    ck_assert_ok(cb_session_prefill(a, h.ids, 30, NULL));
    ck_assert_ok(cb_session_prefill(b, h.ids, 30, NULL));
    same_head(a, b);
    cb_session_close(a);
    cb_session_close(b);
    remove(path);
    cb_headed_close(&h);
}
END_TEST

static uint64_t text_of(const char *path, char *bytes, size_t most)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    ck_assert_ptr_nonnull(f);
    n = fread(bytes, 1, most, f);
    fclose(f);
    ck_assert_uint_lt(n, most);
    return n;
}

/* Models that leave the head unused write the files that they always wrote, and read those with a
 * head; a model with one reads theirs, and its head begins with the next tokens. */
START_TEST(banks_with_and_without)
{
    static const char with[] = "check_mtp.with.bank", plain[] = "check_mtp.plain.bank";
    enum { MOST = 1 << 22 };
    char *x = calloc(MOST, 1);
    cb_session *s, *t;

    cb_headed_new(&h, _i, HEAD_RANDOM, 2);
    s = cb_headed_session(&h, "full", 64);
    ck_assert_ok(cb_session_prefill(s, h.ids, PROMPT, NULL));
    ck_assert_ok(cb_session_save(s, with));
    cb_session_close(s);
    cb_model_close(h.m);
    cb_headed_open(&h, 0);
    ck_assert_ok(cb_session_load(h.m, with, 0, &s));
    ck_assert_int_eq(cb_session_len(s), PROMPT);
    ck_assert_ok(cb_session_save(s, plain));
    cb_session_close(s);
    text_of(with, x, MOST);
    ck_assert_int_eq(x[8], 3); /* the format */
    text_of(plain, x, MOST);
    ck_assert_int_eq(x[8], 1);
    cb_model_close(h.m);
    cb_headed_open(&h, 2);
    ck_assert_ok(cb_session_load(h.m, plain, 0, &s));
    ck_assert_ok(cb_session_load(h.m, with, 0, &t));
    ck_assert_ptr_null(s->follower);
    ck_assert_ptr_nonnull(t->follower);
    ck_assert(!memcmp(cb_session_logits(s), cb_session_logits(t),
                      (size_t)h.recipe.n_vocab * sizeof(float)));
    ck_assert_ok(cb_session_decode(s, h.ids[0]));
    ck_assert_int_ge(cb_headed_guess(s, h.ids[1], 1), 0);
    cb_session_close(s);
    cb_session_close(t);
    remove(with);
    remove(plain);
    free(x);
    cb_headed_close(&h);
}
END_TEST

/* The file at `from` once more, count `at` of its head changed by `by` and all checksums right; at
 * < 0: without its last area */
static void write_changed(const char *from, const char *to, int at, int by)
{
    struct bank_file f;
    struct bank_writer *w;

    ck_assert_ok(cb_bank_file_open(from, &f));
    ck_assert_ok(cb_bank_writer_open(to, 1, &w));
    for (int i = 0; i < f.n_area - (at < 0); i++) {
        const struct bank_area *a = &f.area[i];
        char *bytes = calloc((size_t)a->bytes + 1, 1);
        int32_t count;
        ck_assert_ok(cb_bank_file_read(&f, i, (size_t)a->bytes, bytes));
        if (a->kind == AREA_HEAD_COUNTS && at >= 0) {
            memcpy(&count, bytes + 4 * at, sizeof count);
            count += by;
            memcpy(bytes + 4 * at, &count, sizeof count);
        }
        ck_assert_ok(
            cb_bank_writer_add(w, &(struct area){ (enum area_kind)a->kind, a->layer, a->head,
                                                  a->from, bytes, (size_t)a->bytes }));
        free(bytes);
    }
    ck_assert_ok(cb_bank_writer_finish(w, 3, f.about, f.n_about));
    cb_bank_file_close(&f);
}

START_TEST(damaged_heads)
{
    static const char path[] = "check_mtp.bank", changed[] = "check_mtp.changed.bank";
    static const struct {
        int at, by;
    } wrong[] = { { 0, 1 },   { 0, -300 }, { 1, 1 }, { 1, -1 }, { 2, 1 }, { 2, -1 },
                  { 2, 100 }, { 3, -1 },   { 5, 2 }, { 7, 5 },  { -1, 0 } };
    cb_session *s;

    cb_headed_new(&h, 0, HEAD_RANDOM, 2);
    s = cb_headed_session(&h, "full", 64);
    ck_assert_ok(cb_session_prefill(s, h.ids, PROMPT, NULL));
    ck_assert_ok(cb_session_save(s, path));
    cb_session_close(s);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_changed(path, changed, wrong[i].at, wrong[i].by);
        ck_assert_msg(cb_session_load(h.m, changed, 0, &s) == CB_EFORMAT, "%d: opens", (int)i);
        ck_assert_msg(strstr(cb_error(), changed) != NULL, "%s", cb_error());
    }
    remove(path);
    remove(changed);
    cb_headed_close(&h);
}
END_TEST

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    if (!cb_model_page_lost(h.m, info->si_addr))
        _exit(99);
}

/* Many rows stay in the file. When it becomes shorter they are lost: nothing is saved of them, and
 * the session is as a new one. */
START_TEST(long_heads_are_mapped)
{
    enum { LONG = 2400 };
    static const char path[] = "check_mtp.long.bank", other[] = "check_mtp.other.bank";
    static int32_t ids[LONG];
    const struct cb_session_params p = { .n_ctx = LONG + 100, .chunk = 256 };
    struct sigaction sa = { .sa_flags = SA_SIGINFO };
    cb_session *a, *b;

    sa.sa_sigaction = on_bus_error;
    ck_assert_int_eq(sigaction(SIGBUS, &sa, NULL), 0);
    cb_headed_new(&h, 0, HEAD_RANDOM, 4);
    for (int i = 0; i < LONG; i++)
        ids[i] = h.ids[i * 7 % HEADED_IDS];
    ck_assert_ok(cb_session_open(h.m, &p, &a));
    ck_assert_ok(cb_session_prefill(a, ids, LONG, NULL));
    save_and_open(a, path, &b);
    ck_assert_ptr_nonnull(cb_mtp_drafter_of(b)->s->mapped);
    same_head(a, b);
    ck_assert_int_eq(truncate(path, 70000), 0);
    ck_assert_int_eq(cb_saved_head_check(b), CB_EIO);
    ck_assert_int_eq(cb_session_save(b, other), CB_EIO);
    ck_assert_int_eq(access(other, F_OK), -1);
    ck_assert_int_eq(cb_session_decode(b, ids[0]), CB_EIO);
    cb_session_clear(a);
    ck_assert_ok(cb_session_prefill(a, ids, PROMPT, NULL));
    ck_assert_ok(cb_session_prefill(b, ids, PROMPT, NULL));
    same_head(a, b);
    cb_session_close(a);
    cb_session_close(b);
    remove(path);
    cb_headed_close(&h);
}
END_TEST

/* A folder remembers it too, for the same prompt and for one that goes on otherwise. */
START_TEST(folders)
{
    const struct cb_session_params p = { .n_ctx = HEADED_CTX, .chunk = 64 };
    cb_session *a, *b;
    cb_bank_dir *d;
    int n;

    cb_headed_new(&h, _i, HEAD_RANDOM, 2);
    ck_assert_ok(cb_bank_dir_open(cb_folder_make("check_mtp"), NULL, &d));
    a = cb_headed_session(&h, "full", 64);
    ck_assert_ok(cb_session_prefill(a, h.ids, PROMPT, NULL));
    ck_assert_ok(cb_bank_dir_put(d, a));
    ck_assert_ok(cb_bank_dir_find(d, h.m, &p, h.ids, PROMPT, &b, &n));
    ck_assert_int_eq(n, PROMPT);
    same_head(a, b);
    cb_session_close(b);
    h.ids[PROMPT - 20]++;
    ck_assert_ok(cb_bank_dir_find(d, h.m, &p, h.ids, HEADED_IDS, &b, &n));
    ck_assert_int_eq(n, cb_session_computes_again(b) ? 128 : PROMPT - 20);
    ck_assert_ok(cb_session_prefill(b, h.ids + n, HEADED_IDS - n, NULL));
    ck_assert_int_ge(cb_headed_guess(b, h.ids[0], 1), 0);
    ck_assert_int_ge(cb_mtp_drafter_of(b)->s->bank.n_seen, HEADED_IDS - 2);
    ck_assert_ok(cb_bank_dir_put(d, b)); /* continues the file before */
    cb_session_close(a);
    ck_assert_ok(cb_bank_dir_find(d, h.m, &p, h.ids, HEADED_IDS, &a, &n));
    ck_assert_int_eq(n, HEADED_IDS);
    same_head(b, a);
    cb_session_close(a);
    cb_session_close(b);
    cb_bank_dir_close(d);
    cb_folder_remove();
    cb_headed_close(&h);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("saved_head");
    TCase *tc = tcase_create("saved_head");

    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, saved_banks, 0, 2 * HEADED);
    tcase_add_loop_test(tc, banks_with_and_without, 0, HEADED);
    tcase_add_test(tc, damaged_heads);
    tcase_add_test(tc, long_heads_are_mapped);
    tcase_add_loop_test(tc, folders, 0, HEADED);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
