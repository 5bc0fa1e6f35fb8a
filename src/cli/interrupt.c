/* SPDX-License-Identifier: MIT */
/* interrupt.c - signals. SIGINT, SIGTERM and SIGHUP ask the work to stop; a second one kills the
 * program. A model file that shrinks while it is mapped is an error like any other. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

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

static void on_signal(int sig)
{
    asked = sig;
}

void cb_interrupt_catch(void)
{
    /* SA_RESTART: a write to a pipe that is full goes on; it has not failed */
    struct sigaction sa = { .sa_flags = (int)SA_RESETHAND | SA_RESTART };

    asked = 0;
    sa.sa_handler = on_signal;
    sigemptyset(&sa.sa_mask);
    for (int i = 0; i < N_CAUGHT; i++) {
        sigaction(caught[i], &sa, &was[i]);
        if (caught[i] != SIGINT && was[i].sa_handler == SIG_IGN) /* nohup */
            signal(caught[i], SIG_IGN);
    }
}

void cb_interrupt_clear(void)
{
    for (int i = 0; i < N_CAUGHT; i++)
        sigaction(caught[i], &was[i], NULL);
    asked = 0;
}

int cb_interrupted(void)
{
    return asked;
}

int cb_interrupt_status(int rc)
{
    return rc == CB_ECANCEL && asked ? 128 + asked : rc;
}
