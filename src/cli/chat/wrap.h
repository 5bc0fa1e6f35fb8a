/* SPDX-License-Identifier: MIT */
/* wrap.h - text that comes in pieces, broken between words to fit the width of a terminal. */
#ifndef WRAP_H
#define WRAP_H

#include "base/buf.h"

struct wrap {
    int (*out)(const char *s, size_t n); /* writes text; a negative status ends the work */
    int width;                           /* columns; 0 = lines are not broken */
    int at;                              /* column of what was written */
    int word;                            /* columns of the word that is held back */
    int blanks;                          /* blanks before it that are held back too */
    int fence;                           /* 1: in a block of code, where lines stay as they are */
    struct buf held;                     /* the word */
    char line[4];                        /* the first bytes of the line: is it a fence? */
    int n_line;
};

/* A word is held back until it is complete, or longer than a line. Pieces are whole characters. */
int cb_wrap_put(struct wrap *w, const char *s, size_t n);
int cb_wrap_end(struct wrap *w); /* what is held back; then the next text can come */
void cb_wrap_free(struct wrap *w);

#endif
