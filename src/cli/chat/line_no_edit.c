/* SPDX-License-Identifier: MIT */
/* line_no_edit.c - for builds without libedit: lines cannot be edited. */
#include <stddef.h>

#include "base/err.h"
#include "line.h"

int cb_editor_open(const struct line_reader *r, struct editor **e)
{
    (void)r;
    *e = NULL;
    return CB_OK;
}

void cb_editor_close(struct editor *e)
{
    (void)e;
}

int cb_editor_read(struct editor *e, struct buf *out)
{
    (void)e;
    (void)out;
    return LINE_END;
}

void cb_editor_remember(struct editor *e, const char *text)
{
    (void)e;
    (void)text;
}
