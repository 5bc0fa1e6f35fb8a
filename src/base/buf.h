/* SPDX-License-Identifier: MIT */
/* buf.h - a text that grows. A failed allocation is remembered, and reported when the text is
 * taken. */
#ifndef BUF_H
#define BUF_H

#include <stddef.h>

struct buf {
    char *s; /* ends in NUL, which n does not count; NULL when nothing was added */
    size_t n, cap;
    int failed;
};

void cb_buf_add(struct buf *b, const char *s, size_t n);
/* The same for a caller that checks at once: CB_ENOMEM if memory ran out, now or before */
int cb_buf_put(struct buf *b, const char *s, size_t n);
void cb_buf_text(struct buf *b, const char *s);
void cb_buf_print(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cb_buf_clear(struct buf *b); /* empties it; keeps the memory */
void cb_buf_free(struct buf *b);
char *cb_buf_take(struct buf *b); /* caller frees; NULL if memory ran out. Leaves *b empty */

#endif
