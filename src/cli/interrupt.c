/* SPDX-License-Identifier: MIT */
/* interrupt.c - signals. SIGINT, SIGTERM and SIGHUP ask the work to stop; a second one kills the
 * program, but not a conversation in a terminal. A model file that shrinks while it is mapped is an
 * error like any other. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "cmd.h"

static const char *mapped; /* path of the model */

/* Only what is safe in a signal handler: write() and _exit(). */
static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code != BUS_ADRERR) { /* no file's fault: the instruction fails again, and kills */
        signal(sig, SIG_DFL);
        return;
    }
    say("ctxbank: ");
    say(mapped);
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
    /* SA_RESTART: a write to a pipe that is full goes on; it has not failed */
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
