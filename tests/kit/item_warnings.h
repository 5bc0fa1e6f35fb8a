/* SPDX-License-Identifier: MIT */
/* item_warnings.h - what reading a task's file warns of, and the templates that it is read with. */
#ifndef ITEM_WARNINGS_H
#define ITEM_WARNINGS_H

extern char cb_item_warned[4096]; /* warnings since cb_item_begin(), a line each */

/* Takes a warning for cb_item_read() */
void cb_item_warn(void *arg, const char *text);

/* Before a test: no warnings, and the source tree's templates (CTXBANK_DATA) */
void cb_item_begin(void);

#endif
