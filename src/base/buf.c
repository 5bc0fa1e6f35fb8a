/* SPDX-License-Identifier: MIT */
/* buf.c - a text that grows. */
#include "buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

static int room(struct buf *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 256;
    char *s;

    while (cap - b->n <= n && cap <= PTRDIFF_MAX)
        cap *= 2;
    if (cap == b->cap)
        return 1;
    s = cb_realloc(b->s, cap, 1);
    if (!s) {
        b->failed = 1;
        return 0;
    }
    b->s = s;
    b->cap = cap;
    return 1;
}

void cb_buf_add(struct buf *b, const char *s, size_t n)
{
    if (b->failed || !room(b, n))
        return;
    if (n)
        memcpy(b->s + b->n, s, n);
    b->n += n;
    b->s[b->n] = '\0';
}

int cb_buf_put(struct buf *b, const char *s, size_t n)
{
    cb_buf_add(b, s, n);
    return b->failed ? cb_fail(CB_ENOMEM, "out of memory: a text of more than %zu bytes", b->n)
                     : CB_OK;
}

void cb_buf_text(struct buf *b, const char *s)
{
    cb_buf_add(b, s, strlen(s));
}

void cb_buf_print(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    if (n >= 0 && !b->failed && room(b, (size_t)n)) {
        vsnprintf(b->s + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
    va_end(ap);
}

void cb_buf_clear(struct buf *b)
{
    b->n = 0;
    if (b->s)
        b->s[0] = '\0';
}

void cb_buf_free(struct buf *b)
{
    free(b->s);
    *b = (struct buf){ 0 };
}

char *cb_buf_take(struct buf *b)
{
    char *s;

    cb_buf_add(b, "", 0);
    s = b->failed ? NULL : b->s;
    if (b->failed)
        free(b->s);
    *b = (struct buf){ 0 };
    return s;
}
