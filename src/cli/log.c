/* SPDX-License-Identifier: MIT */
/* log.c - what the program says on standard error. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>

static enum log_level said = LOG_NORMAL; /* set once from -v and -q */

void cb_log_level(enum log_level level)
{
    said = level;
}

void cb_log_error(const char *text)
{
    fprintf(stderr, "ctxbank: %s\n", text);
}

static void say(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));
static void say(const char *fmt, va_list ap)
{
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
}

void cb_log_note(const char *fmt, ...)
{
    va_list ap;

    if (said < LOG_NORMAL)
        return;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
}

void cb_log_detail(const char *fmt, ...)
{
    va_list ap;

    if (said < LOG_VERBOSE)
        return;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
}
