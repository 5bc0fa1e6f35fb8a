/* SPDX-License-Identifier: MIT */
/* interrupt.c - SIGINT asks a generation to stop; a second one kills the program. */
#include <signal.h>

#include "cmd.h"

static volatile sig_atomic_t asked;

static void on_int(int sig)
{
    (void)sig;
    asked = 1;
}

void cb_interrupt_catch(void)
{
    struct sigaction sa = { .sa_flags = (int)SA_RESETHAND };

    asked = 0;
    sa.sa_handler = on_int;
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
}

void cb_interrupt_clear(void)
{
    signal(SIGINT, SIG_DFL);
    asked = 0;
}

int cb_interrupted(void)
{
    return asked;
}
