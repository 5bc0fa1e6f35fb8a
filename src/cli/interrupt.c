/* SPDX-License-Identifier: MIT */
/* interrupt.c - signals. SIGINT, SIGTERM and SIGHUP ask the work to stop; a second one kills the
 * program, but not a conversation in a terminal. A file that shrinks while it is mapped is an error
 * like any other. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "cmd.h"

static const char *mapped; /* path of the model */

enum { MOST_MODELS = 64 };                      /* models that are guarded at once */
static _Atomic(cb_model *) banked[MOST_MODELS]; /* their sessions may map saved banks; or NULL */
static atomic_int n_handling;                   /* threads that look at them */

/* Only what is safe in a signal handler: write() and _exit(). */
static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

/* ---- a file that shrinks while it is mapped ---- */

/* /proc/self/maps, byte by byte */
struct maps {
    int fd;
    ssize_t n, at;
    char b[512];
};

/* The next byte; 0: the end */
static int next(struct maps *m)
{
    if (m->at == m->n) {
        m->n = read(m->fd, m->b, sizeof m->b);
        m->at = 0;
    }
    return m->n > 0 ? (unsigned char)m->b[m->at++] : 0;
}

static uintptr_t address(struct maps *m)
{
    uintptr_t x = 0;
    int c;

    while ((c = next(m)) && c != '-' && c != ' ')
        x = 16 * x + (uintptr_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    return x;
}

/* The rest of a line, less its fields of rights, offset, device and inode -> out[cap]. Returns its
 * last byte: 0 at the end */
static int name_of(struct maps *m, char *out, size_t cap)
{
    size_t n = 0;
    int c, fields = 4;

    while ((c = next(m)) && c != '\n') {
        if (fields > 0)
            fields -= c == ' ';
        else if ((n || c != ' ') && n + 1 < cap)
            out[n++] = (char)c;
    }
    out[n] = '\0';
    return c;
}

/* The file that is mapped at p -> out[cap], "" where it is unknown. Only read() and the like. */
static void file_at(const void *p, char *out, size_t cap)
{
    struct maps m = { .fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC) };
    int more = m.fd >= 0;

    *out = '\0';
    while (more) {
        const uintptr_t from = address(&m), to = address(&m);
        more = name_of(&m, out, cap);
        if (from <= (uintptr_t)p && (uintptr_t)p < to)
            break;
        *out = '\0';
    }
    if (m.fd >= 0)
        close(m.fd);
}

/* 1: a saved bank has lost the page, and its session will see that. */
static int is_of_bank(const void *at)
{
    int found = 0;

    atomic_fetch_add(&n_handling, 1);
    for (int i = 0; i < MOST_MODELS && !found; i++) {
        cb_model *m = atomic_load(&banked[i]);
        found = m && cb_model_page_lost(m, at);
    }
    atomic_fetch_sub(&n_handling, 1);
    return found;
}

/* A saved bank is an error of the session that has mapped it; the model ends the program. */
static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    static char name[4096];

    (void)context;
    if (info->si_code == BUS_ADRERR && is_of_bank(info->si_addr))
        return;
    if (info->si_code != BUS_ADRERR) { /* no file's fault: the instruction fails again, and kills */
        signal(sig, SIG_DFL);
        return;
    }
    while (atomic_flag_test_and_set(&said)) /* another thread says it, and ends the program */
        pause();
    file_at(info->si_addr, name, sizeof name);
    say("ctxbank: ");
    say(*name ? name : mapped);
    say(": became shorter while it was in use, or could not be read\n");
    _exit(1);
}

void cb_bus_error_catch(const char *path)
{
    struct sigaction sa = { .sa_flags = SA_SIGINFO };

    mapped = path;
    sa.sa_sigaction = on_bus_error;
    sigemptyset(&sa.sa_mask);
    sigaction(SIGBUS, &sa, NULL);
}

void cb_bus_error_add(cb_model *m)
{
    for (int i = 0; m && i < MOST_MODELS; i++) {
        cb_model *none = NULL;
        if (atomic_compare_exchange_strong(&banked[i], &none, m))
            return;
    }
}

/* A handler on another thread may still look at the model. */
void cb_bus_error_remove(cb_model *m)
{
    for (int i = 0; m && i < MOST_MODELS; i++) {
        cb_model *is = m;
        atomic_compare_exchange_strong(&banked[i], &is, NULL);
    }
    while (m && atomic_load(&n_handling))
        sched_yield();
}

static const int caught[] = { SIGINT, SIGTERM, SIGHUP };
enum { N_CAUGHT = sizeof caught / sizeof *caught };

static struct sigaction was[N_CAUGHT];
static volatile sig_atomic_t asked; /* the signal, or 0 */

static int wake[2] = { -1, -1 }; /* a pipe: whoever waits for input wakes */

void cb_interrupt_wake(void)
{
    const int saved = errno;

    if (wake[1] >= 0)
        (void)!write(wake[1], "", 1); /* a full pipe wakes as well */
    errno = saved;
}

static void on_signal(int sig)
{
    asked = sig;
    cb_interrupt_wake();
}

static void catch_all(int first_flags)
{
    /* SA_RESTART: a write to a pipe that is full continues; it has not failed */
    struct sigaction sa = { .sa_flags = 0 };

    asked = 0;
    sa.sa_handler = on_signal;
    sigemptyset(&sa.sa_mask);
    for (int i = 0; i < N_CAUGHT; i++) {
        sa.sa_flags = SA_RESTART | (caught[i] == SIGINT ? first_flags : (int)SA_RESETHAND);
        sigaction(caught[i], &sa, &was[i]);
        if (caught[i] != SIGINT && was[i].sa_handler == SIG_IGN) /* nohup */
            signal(caught[i], SIG_IGN);
    }
}

void cb_interrupt_catch(void)
{
    catch_all((int)SA_RESETHAND);
}

int cb_interrupt_watch(int *fd)
{
    if (pipe2(wake, O_CLOEXEC | O_NONBLOCK))
        return cb_fail(CB_EIO, "pipe: %s", strerror(errno));
    *fd = wake[0];
    catch_all(0);
    return CB_OK;
}

void cb_interrupt_forget(void)
{
    asked = 0;
}

void cb_interrupt_clear(void)
{
    const int fd[2] = { wake[0], wake[1] };

    for (int i = 0; i < N_CAUGHT; i++)
        sigaction(caught[i], &was[i], NULL);
    asked = 0;
    wake[0] = wake[1] = -1;
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

int cb_interrupted(void)
{
    return asked;
}

int cb_interrupt_status(int rc)
{
    return rc == CB_ECANCEL && asked ? 128 + asked : rc;
}
