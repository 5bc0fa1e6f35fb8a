/* SPDX-License-Identifier: MIT */
/* check_checkpoints.c - checkpoints of a saved bank stay in its file. Damage is found when one is
 * used, never later, and costs time alone. */
#include <dirent.h>
#include <fcntl.h>

#include "bank/bank_file.h"
#include "hybrid.h"

/* The area with this checkpoint */
static int area_of(const char *path, int checkpoint)
{
    struct bank_file f;
    int i = 0;

    ck_assert_ok(cb_bank_file_open(path, &f));
    while (i < f.n_area && (f.area[i].kind != AREA_CHECKPOINT || f.area[i].head != checkpoint))
        i++;
    ck_assert_int_lt(i, f.n_area);
    cb_bank_file_close(&f);
    return i;
}

/* Flips a bit in the middle of area i. */
static void flip(const char *path, int i)
{
    const int fd = open(path, O_RDWR);
    struct bank_file f;
    off_t at;
    char c;

    ck_assert_ok(cb_bank_file_open(path, &f));
    at = (off_t)(f.area[i].at + f.area[i].bytes / 2);
    ck_assert(fd >= 0 && pread(fd, &c, 1, at) == 1);
    c ^= 4;
    ck_assert(pwrite(fd, &c, 1, at) == 1 && !close(fd));
    cb_bank_file_close(&f);
}

/* A bank of the timeline's first 420 tokens, with checkpoints at 256 and at 384 */
static void save_420(void)
{
    cb_session *s = session_of(m, 0, 0);

    feed(s, 0, 420);
    ck_assert_int_eq(s->bank.states.n, 2);
    ck_assert_ok(cb_session_save(s, saved));
    cb_session_close(s);
}

/* Damage in any area is found: that of a checkpoint when it is used, all other when the bank is
 * opened. */
START_TEST(damaged_areas)
{
    cb_session *s, *fresh;
    struct bank_file f;

    open_recipe(_i);
    save_420();
    ck_assert_ok(cb_bank_file_open(saved, &f));
    n_note = 0;
    for (int i = 0; i < f.n_area; i++) {
        const int later = f.area[i].kind == AREA_CHECKPOINT;
        if (!f.area[i].bytes)
            continue;
        flip(saved, i);
        ck_assert_int_eq(cb_bank_verify(saved), CB_EFORMAT);
        ck_assert_int_eq(cb_session_load(m, saved, 0, &s), later ? CB_OK : CB_EFORMAT);
        ck_assert(later || strstr(cb_error(), "damaged: the checksum of"));
        if (later) {
            fresh = session_of(m, 0, 0);
            feed(fresh, 0, 420);
            feed_both(s, fresh, "beside a damaged checkpoint");
            cb_session_close(fresh);
            cb_session_close(s);
        }
        flip(saved, i);
    }
    ck_assert_int_eq(n_note, 0);
    ck_assert_ok(cb_bank_verify(saved));
    cb_bank_file_close(&f);
    close_recipe();
}
END_TEST

/* A cut says which checkpoint is damaged, and computes from the one before, or from the beginning.
 */
START_TEST(damaged_checkpoints)
{
    static const int to[] = { 400, 300 };

    open_recipe(_i);
    for (int bits = 0; bits < 8; bits++) {
        const int n = to[bits / 4], second = n > 384 && bits & 2, first = bits & 1;
        cb_session *cut, *fresh = session_of(m, 0, 0);
        save_420();
        for (int i = 0; i < 2; i++)
            if (bits & 1 << i)
                flip(saved, area_of(saved, i));
        n_note = 0;
        ck_assert_ok(cb_session_load(m, saved, 0, &cut));
        ck_assert_ok(cb_session_truncate(cut, n));
        ck_assert_int_eq(n_note, second + (first && (n < 384 || second)));
        ck_assert(!n_note || (strstr(last_note, saved) && strstr(last_note, "damaged")));
        feed(fresh, 0, n);
        feed_both(cut, fresh, "cut beside a damaged checkpoint");
        cb_session_close(cut);
        cb_session_close(fresh);
    }
    close_recipe();
}
END_TEST

/* Bytes that this process has read from files; 0: the system does not say */
static uint64_t bytes_read(void)
{
    FILE *f = fopen("/proc/self/io", "r");
    unsigned long long n = 0;

    if (f && fscanf(f, "rchar: %llu", &n) != 1)
        n = 0;
    if (f)
        fclose(f);
    return n;
}

/* A bank that is saved once more has the sound checkpoints, and no damage. Saving reads them once,
 * and leaves the session as it is. */
START_TEST(saved_twice)
{
    enum { LITTLE = 4096 }; /* what else is read */
    cb_session *s, *fresh;
    uint64_t state, before;

    open_recipe(_i);
    for (int bits = 0; bits < 4; bits++) {
        save_420();
        for (int i = 0; i < 2; i++)
            if (bits & 1 << i)
                flip(saved, area_of(saved, i));
        ck_assert_ok(cb_session_load(m, saved, 0, &s));
        unlink(saved);
        held(s, &state);
        before = bytes_read();
        ck_assert_ok(cb_session_save(s, saved));
        ck_assert_uint_le(bytes_read() - before, 2 * (state / 2) + LITTLE);
        ck_assert_int_eq(s->bank.states.n, 2);
        cb_session_close(s);
        ck_assert_ok(cb_bank_verify(saved));
        ck_assert_ok(cb_session_load(m, saved, 0, &s));
        ck_assert_uint_eq(held(s, &state), (uint64_t)(2 - (bits & 1) - bits / 2) * (state / 2));
        n_note = 0;
        ck_assert_ok(cb_session_truncate(s, 333));
        ck_assert_int_eq(n_note, 0);
        fresh = session_of(m, 0, 0);
        feed(fresh, 0, 333);
        feed_both(s, fresh, "cut of a bank that was saved twice");
        cb_session_close(s);
        cb_session_close(fresh);
    }
    close_recipe();
}
END_TEST

/* Copies share checkpoints, also those of a file that is gone. */
START_TEST(copies_share_checkpoints)
{
    cb_session *s, *fork, *fresh;

    open_recipe(_i);
    for (int loaded = 0; loaded < 2; loaded++) {
        s = session_of(m, 0, 0);
        feed(s, 0, 420);
        if (loaded) {
            ck_assert_ok(cb_session_save(s, saved));
            cb_session_close(s);
            ck_assert_ok(cb_session_load(m, saved, 0, &s));
            unlink(saved);
        }
        ck_assert_ok(cb_session_fork(s, &fork));
        ck_assert_int_eq(fork->bank.states.n, 2);
        for (int i = 0; i < 2; i++)
            ck_assert_ptr_eq(fork->bank.states.point[i].x, s->bank.states.point[i].x);
        ck_assert_ok(cb_session_truncate(s, 130)); /* the other one loses nothing */
        cb_session_close(s);
        ck_assert_ok(cb_session_truncate(fork, 400));
        fresh = session_of(m, 0, 0);
        feed(fresh, 0, 400);
        feed_both(fork, fresh, "cut of a copy");
        cb_session_close(fork);
        cb_session_close(fresh);
    }
    close_recipe();
}
END_TEST

/* Calls what(path of a file) for each file of the folder whose name contains `part`; returns how
 * many. what: NULL = nothing */
static int for_files(const char *folder, const char *part, void (*what)(const char *path))
{
    DIR *d = opendir(folder);
    const struct dirent *f;
    char path[512];
    int n = 0;

    ck_assert_ptr_nonnull(d);
    while ((f = readdir(d))) {
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        if (f->d_name[0] == '.' || !strstr(f->d_name, part))
            continue;
        n++;
        if (what)
            what(path);
    }
    closedir(d);
    return n;
}

static void drop_file(const char *path)
{
    unlink(path);
}

static void flip_last(const char *path)
{
    flip(path, area_of(path, 1));
}

/* A prompt of 700 tokens whose tokens from `same` on are others; returns how many the folder had.
 */
static int prompt_of(cb_bank_dir *d, int same_until, cb_session **out)
{
    enum { N = 700 };
    const struct cb_session_params p = { .n_ctx = N_CTX };
    int32_t prompt[N];
    int n_hit;

    for (int i = 0; i < N; i++)
        prompt[i] = i < same_until ? ids[i] : ids[N_ID - 1 - i + same_until];
    ck_assert_ok(cb_bank_dir_find(d, m, &p, prompt, N, out, &n_hit));
    if (n_hit < N)
        ck_assert_ok(cb_session_prefill(*out, prompt + n_hit, N - n_hit, NULL));
    return n_hit;
}

/* A folder's prompt with checkpoints at 512 and at 640, the latter damaged. Only a prompt that
 * needs the latter finds that out: the file is put aside, and the prompt computed. */
START_TEST(damaged_in_a_folder)
{
    static const int until[] = { 600, 660 };
    char folder[64];
    cb_bank_dir *d;
    cb_session *s, *fresh;

    open_recipe(_i);
    snprintf(folder, sizeof folder, "check_checkpoints.%d.folder", (int)getpid());
    ck_assert_ok(cb_bank_dir_open(folder, NULL, &d));
    ck_assert_int_eq(prompt_of(d, 700, &s), 0);
    ck_assert_int_eq(s->bank.states.n, 2);
    ck_assert_ok(cb_bank_dir_put(d, s));
    cb_session_close(s);
    ck_assert_int_eq(for_files(folder, ".bank", flip_last), 1);
    for (int i = 0; i < 2; i++) {
        cb_bank_dir *none;
        char empty[80];
        ck_assert_int_eq(prompt_of(d, until[i], &s), i ? 0 : 512);
        ck_assert_int_eq(for_files(folder, ".damaged", NULL), i);
        snprintf(empty, sizeof empty, "%s/none", folder);
        ck_assert_ok(cb_bank_dir_open(empty, NULL, &none));
        ck_assert_int_eq(prompt_of(none, until[i], &fresh), 0);
        cb_bank_dir_close(none);
        ck_assert_int_eq(rmdir(empty), 0);
        same(s, fresh, "beside a damaged checkpoint");
        feed_both(s, fresh, "beside a damaged checkpoint");
        cb_session_close(s);
        cb_session_close(fresh);
    }
    ck_assert(strstr(last_note, "it is put aside"));
    cb_bank_dir_close(d);
    for_files(folder, "", drop_file);
    rmdir(folder);
    close_recipe();
}
END_TEST

/* Feeds 3 tokens as a draft of which the first one stays. */
static void draft(cb_session *s, int at)
{
    const int32_t token[] = { ids[at], 1, 2 };
    const float *logits;

    ck_assert_ok(cb_session_decode_all(s, token, 3, &logits));
    ck_assert_ok(cb_session_truncate(s, at + 1));
}

/* The limit holds after every call, to the byte. */
START_TEST(limits)
{
    enum { N = 900 };
    uint64_t each;
    cb_session *s;

    open_recipe(_i);
    s = session_of(m, 0, 0);
    held(s, &each);
    each /= 2;
    cb_session_close(s);
    for (int k = 0; k < 6; k++) {
        const uint64_t limit = (uint64_t)(1 + k / 3) * each + (uint64_t)(k % 3) - 1;
        const int most = 1 + k / 3 - (k % 3 == 0);
        int peak = 0;
        s = session_of(m, 0, limit);
        for (int at = 0, n; at < N; at += n) {
            n = at % 345 < 300 ? 60 : 1;
            n = n < N - at ? n : N - at;
            if (_i < N_DRAFT && n == 1 && at % GRID < GRID - 3)
                draft(s, at);
            else
                feed(s, at, at + n);
            ck_assert_uint_le(held(s, &each), limit);
            peak = s->bank.states.n > peak ? s->bank.states.n : peak;
            each /= 2;
        }
        ck_assert_int_eq(peak, most); /* and it is used */
        cb_session_close(s);
    }
    close_recipe();
}
END_TEST

/* A cut computes at most 512 tokens again, wherever it goes. */
START_TEST(cuts_are_cheap)
{
    cb_session *s;

    open_recipe(_i);
    s = session_of(m, 0, 0);
    ck_assert_ok(cb_session_prefill(s, ids, 800, NULL));
    for (int at = 800; at < N_ID; at++)
        ck_assert_ok(cb_session_decode(s, ids[at]));
    for (int n = 1; n < N_ID; n++)
        ck_assert_int_lt(n - cb_bank_checkpoint(&s->bank, n), 512);
    cb_session_close(s);
    close_recipe();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("checkpoints");
    TCase *tc = tcase_create("checkpoints");

    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, damaged_areas, 0, N_RECIPE);
    tcase_add_loop_test(tc, damaged_checkpoints, 0, N_RECIPE);
    tcase_add_loop_test(tc, saved_twice, 0, N_RECIPE);
    tcase_add_loop_test(tc, copies_share_checkpoints, 0, N_RECIPE);
    tcase_add_loop_test(tc, damaged_in_a_folder, 0, N_DRAFT);
    tcase_add_loop_test(tc, limits, 0, N_RECIPE);
    tcase_add_loop_test(tc, cuts_are_cheap, 0, N_RECIPE);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
