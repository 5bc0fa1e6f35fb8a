/* SPDX-License-Identifier: MIT */
/* check_bank_faults.c - whatever happens to a folder that remembers prompts, the answer is right:
 * faults that pass, files replaced, long chains, locks, full disks, several processes. */
#include "base/json_lenient.h"
#include "kit/suite.h"
#include "remembered.h"

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
    const int step = (kind == FAULT_ALLOC ? CB_SLOWED : 1) * cb_test_nth();
    int n_hit, nth = 1, n_faults = 0;
    cb_session *more;

    cb_json_watch(); /* its memory fails, too */
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

    for (int nth = 1, failed = 1; failed; nth += cb_test_nth()) {
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
        ck_assert_ok(cb_bank_describe(name, &about));
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
        ck_assert_ok(cb_bank_dir_put(dir, s));
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
    ck_assert_ok(cb_bank_dir_put(dir, s));
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
    Suite *s = suite_create("bank faults");
    TCase *c = tcase_create("bank faults");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 600);
    /* a folder draws no random numbers */
    tcase_add_loop_test(c, passing_faults, 0, 2 * FAULT_DRAW);
    tcase_add_loop_test(c, room_and_passing_faults, 0, 2);
    tcase_add_test(c, no_descriptors);
    tcase_add_test(c, replaced_meanwhile);
    tcase_add_test(c, putting_aside_is_said);
    tcase_add_test(c, many_turns);
    tcase_add_test(c, no_folder);
    tcase_add_test(c, a_held_lock);
    tcase_add_test(c, no_such_folder);
    tcase_add_test(c, a_full_disk);
    tcase_add_test(c, killed);
    tcase_add_test(c, together);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
