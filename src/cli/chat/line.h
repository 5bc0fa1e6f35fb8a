/* SPDX-License-Identifier: MIT */
/* line.h - one line from a terminal: with editing and history if a library for that was there when
 * the program was built, else with backspace alone. Either takes a paste of many lines as a part of
 * the line. */
#ifndef LINE_H
#define LINE_H

#include "base/buf.h"
#include "terminal.h"

enum line_status {
    LINE_END = 0,
    LINE_READ = 1,
    LINE_INTERRUPTED = 2 /* Ctrl-C; the text so far is dropped. *out has it */
};

struct line_reader {
    struct terminal *t;
    /* The text of the prompt -> text[cap] */
    void (*prompt)(void *arg, char *text, size_t cap);
    /* The ways to complete head[..], newline-separated -> list; each replaces head[*from..] */
    int (*complete)(void *arg, const char *head, size_t *from, struct buf *list);
    void *arg;
    int colour;
    struct editor *editor; /* NULL: plain */
};

int cb_line_open(struct line_reader *r); /* the caller has set the fields above `editor` */
void cb_line_close(struct line_reader *r);
/* A line without its end -> out. Returns a line_status or a negative status. */
int cb_line_read(struct line_reader *r, struct buf *out);
void cb_line_remember(struct line_reader *r, const char *text); /* for the history */

/* line_edit.c, or line_no_edit.c: *e is NULL where lines cannot be edited */
int cb_editor_open(const struct line_reader *r, struct editor **e);
void cb_editor_close(struct editor *e);
int cb_editor_read(struct editor *e, struct buf *out);
void cb_editor_remember(struct editor *e, const char *text);

#endif
