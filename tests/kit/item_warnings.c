/* SPDX-License-Identifier: MIT */
/* item_warnings.c - what reading a task's file warns of. */
#include "item_warnings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char cb_item_warned[4096];

void cb_item_warn(void *arg, const char *text)
{
    const size_t used = strlen(cb_item_warned);

    (void)arg;
    snprintf(cb_item_warned + used, sizeof cb_item_warned - used, "%s\n", text);
}

void cb_item_begin(void)
{
    const char *srcdir = getenv("srcdir");
    char dir[4096];

    snprintf(dir, sizeof dir, "%s/data", srcdir ? srcdir : ".");
    setenv("CTXBANK_DATA", dir, 1);
    cb_item_warned[0] = '\0';
}
