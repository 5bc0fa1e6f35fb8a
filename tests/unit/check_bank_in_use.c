/* SPDX-License-Identifier: MIT */
/* check_bank_in_use.c - a bank is written whole or not at all, for its owner alone; a file that
 * somebody changes while its rows are read ends the calls of its session with an error. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "saved.h"

/* ---- writing is all or nothing ---- */

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

/* The others of a batch get their tokens. */
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
    Suite *s = suite_create("bank in use");
    TCase *c = tcase_create("bank in use");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, private);
    tcase_add_test(c, a_full_disk);
    tcase_add_test(c, killed);
    tcase_add_loop_test(c, changed_in_use, 0, N_IN_USE * N_CUT);
    tcase_add_loop_test(c, changed_in_company, 0, N_CUT);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
