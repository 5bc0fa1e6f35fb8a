/* SPDX-License-Identifier: MIT */
/* terminal.h - the terminal of a conversation: its mode, its signals, and waiting for keys. */
#ifndef TERMINAL_H
#define TERMINAL_H

#include <stdio.h>
#include <termios.h>

/* What cb_terminal_key() returns besides bytes */
enum {
    KEY_END = -1,       /* no more input, or a signal that ends the program */
    KEY_INTERRUPT = -2, /* Ctrl-C */
    KEY_REDRAW = -3,    /* the prompt has another text, or the screen another size */
    KEY_RESUMED = -4    /* the program was stopped (Ctrl-Z) and continues */
};

/* Keys are not echoed and come one by one, also while an answer is printed: the kernel would cut a
 * pasted line at 4,095 bytes, and show in the middle of the answer what is typed meanwhile. */
struct terminal {
    FILE *screen; /* where prompts and what is typed are shown */
    int wake_fd;
    /* Does a short piece of work while nobody types. 1 = more is left, 0 = nothing to do. *redraw
     * becomes 1 when the prompt has another text. */
    int (*work)(void *arg, int *redraw);
    void *work_arg;
    struct termios was; /* as it was found */
    int smart;          /* 1: it understands escape sequences */
};

/* CB_EIO if standard input is no terminal that can be set up. t->work may be set later. */
int cb_terminal_open(struct terminal *t);
void cb_terminal_close(struct terminal *t);
void cb_terminal_begin(struct terminal *t); /* before a line is read */
void cb_terminal_end(struct terminal *t);   /* after it */
int cb_terminal_key(struct terminal *t);    /* a byte, or one of KEY_... */
int cb_terminal_columns(int fd);            /* 80 if it does not say */

#endif
