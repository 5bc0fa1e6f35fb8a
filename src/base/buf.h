/* SPDX-License-Identifier: MIT */
/* buf.h - a text that grows. What fails for want of memory shows when the text is taken. */
#ifndef BUF_H
#define BUF_H

#include <stddef.h>

struct buf {
    char *s; /* ends in NUL, which n does not count; NULL when nothing was added */
    size_t n, cap;
    int failed;
};

void cb_buf_add(struct buf *b, const char *s, size_t n);
void cb_buf_text(struct buf *b, const char *s);
void cb_buf_print(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* for XML: < and & are escaped */
void cb_buf_escaped(struct buf *b, const char *s);
/* a text element of SVG; anchor: "start", "middle", "end" */
void cb_buf_svg_text(struct buf *b, double x, double y, const char *anchor, const char *s);
void cb_buf_clear(struct buf *b); /* empty, the memory stays */
void cb_buf_free(struct buf *b);
char *cb_buf_take(struct buf *b); /* caller frees; NULL when memory ran out. *b is empty after it */

#endif
