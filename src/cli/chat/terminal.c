/* SPDX-License-Identifier: MIT */
/* terminal.c - the terminal of a conversation: its mode, its signals, and waiting for keys. */
#include "terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cmd.h"

static volatile sig_atomic_t stopped, resized;
static struct sigaction was_stop, was_resize;

static void on_stop(int sig)
{
    if (sig == SIGTSTP)
        stopped = 1;
    else
        resized = 1;
    cb_interrupt_wake();
}

int cb_terminal_columns(int fd)
{
    struct winsize w;

    return ioctl(fd, TIOCGWINSZ, &w) || !w.ws_col ? 80 : w.ws_col;
}

/* ---- modes ---- */

static void set_quiet(const struct terminal *t)
{
    struct termios quiet = t->was;

    quiet.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    quiet.c_lflag |= NOFLSH; /* Ctrl-C drops nothing that was typed ahead */
    quiet.c_cc[VMIN] = 1;
    quiet.c_cc[VTIME] = 0;
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet);
}

/* Bracketed paste: pasted text comes between two escape sequences. */
static void say(const struct terminal *t, const char *text)
{
    if (t->smart)
        fputs(text, t->screen);
    fflush(t->screen);
}

int cb_terminal_open(struct terminal *t)
{
    const char *term = getenv("TERM");

    *t = (struct terminal){ .wake_fd = -1 };
    t->screen = isatty(STDERR_FILENO)   ? stderr
                : isatty(STDOUT_FILENO) ? stdout
                                        : fopen("/dev/tty", "we");
    if (!t->screen || tcgetattr(STDIN_FILENO, &t->was))
        return cb_fail(CB_EIO, "terminal: %s", strerror(errno));
    t->smart = term && *term && strcmp(term, "dumb");
    TRY(cb_interrupt_watch(&t->wake_fd));
    set_quiet(t);
    return CB_OK;
}

void cb_terminal_close(struct terminal *t)
{
    if (t->wake_fd < 0)
        return;
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->was);
    cb_interrupt_clear();
    if (t->screen != stderr && t->screen != stdout)
        fclose(t->screen);
    t->wake_fd = -1;
}

void cb_terminal_begin(struct terminal *t)
{
    struct sigaction sa = { .sa_flags = SA_RESTART };

    sa.sa_handler = on_stop;
    sigemptyset(&sa.sa_mask);
    sigaction(SIGTSTP, &sa, &was_stop);
    sigaction(SIGWINCH, &sa, &was_resize);
    stopped = resized = 0;
    set_quiet(t);
    say(t, "\033[?2004h");
}

void cb_terminal_end(struct terminal *t)
{
    set_quiet(t); /* libedit leaves it as shells like it */
    say(t, "\033[?2004l");
    sigaction(SIGTSTP, &was_stop, NULL);
    sigaction(SIGWINCH, &was_resize, NULL);
}

/* ---- keys ---- */

static int stop_here(struct terminal *t)
{
    stopped = 0;
    say(t, "\033[?2004l");
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->was);
    raise(SIGSTOP);
    set_quiet(t);
    say(t, "\033[?2004h");
    return KEY_RESUMED;
}

/* The signal that came, as a key, or 0 */
static int signal_key(struct terminal *t)
{
    const int sig = cb_interrupted();

    if (sig && sig != SIGINT)
        return KEY_END; /* and it is not forgotten */
    if (sig) {
        cb_interrupt_forget();
        return KEY_INTERRUPT;
    }
    if (stopped)
        return stop_here(t);
    if (!resized)
        return 0;
    resized = 0;
    return KEY_REDRAW;
}

static int read_key(void)
{
    unsigned char c;
    ssize_t n;

    do
        n = read(STDIN_FILENO, &c, 1);
    while (n < 0 && errno == EINTR);
    return n == 1 ? c : KEY_END;
}

int cb_terminal_key(struct terminal *t)
{
    struct pollfd fd[2] = { { .fd = STDIN_FILENO, .events = POLLIN },
                            { .fd = t->wake_fd, .events = POLLIN } };
    int left = t->work != NULL, key, redraw = 0;
    char woken[64];

    fflush(t->screen);
    for (;;) {
        const int n = poll(fd, 2, left ? 0 : -1);
        if (n < 0 && errno != EINTR)
            return KEY_END;
        if (n > 0 && fd[1].revents)
            (void)!read(t->wake_fd, woken, sizeof woken);
        key = signal_key(t);
        if (key)
            return key;
        if (n > 0 && fd[0].revents)
            return read_key();
        if (n <= 0 && left)
            left = t->work(t->work_arg, &redraw);
        if (redraw)
            return KEY_REDRAW;
    }
}
