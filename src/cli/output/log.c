/* SPDX-License-Identifier: MIT */
/* log.c - messages of the program on standard error. */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"
#include "ctxbank.h"

enum { LONGEST = 4608 }; /* bytes of a line: a path and what happened to it */

static enum log_level said = LOG_NORMAL; /* set once from -v and -q */
static FILE *copy;                       /* of --log-file, until the program ends */
static char copy_name[LONGEST];
static atomic_int copy_full; /* 1: it could not grow */

void cb_log_level(enum log_level level)
{
    said = level;
}

int cb_log_open(const char *path)
{
    snprintf(copy_name, sizeof copy_name, "%s", path);
    copy = fopen(path, "ae");
    return copy ? CB_OK : cb_fail(CB_EIO, "%s: %s", path, strerror(errno));
}

/* A file that cannot grow is told once; the program does its work without it. */
static void put_copy(const char *line)
{
    if (atomic_load(&copy_full) || (fprintf(copy, "%s\n", line) >= 0 && !fflush(copy)))
        return;
    if (!atomic_exchange(&copy_full, 1))
        fprintf(stderr, "ctxbank: %s: %s; nothing more is logged there\n", copy_name,
                strerror(errno));
}

void cb_log_failure(int status)
{
    char line[LONGEST];

    snprintf(line, sizeof line, "ctxbank: %s%s", cb_error(),
             status == CB_EFULL ? "; raise it with -c" : "");
    fprintf(stderr, "%s\n", line);
    if (copy)
        put_copy(line);
}

/* Prints a line, unless the level is below `least`. */
static void say(enum log_level least, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
static void say(enum log_level least, const char *fmt, va_list ap)
{
    char line[LONGEST];

    if (said < least && !copy)
        return;
    vsnprintf(line, sizeof line, fmt, ap);
    line[cb_utf8_plain(line, strlen(line), "")] = '\0'; /* names from files may be in it */
    if (said >= least)
        fprintf(stderr, "%s\n", line);
    if (copy)
        put_copy(line);
}

void cb_log_note(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(LOG_NORMAL, fmt, ap);
    va_end(ap);
}

void cb_log_detail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(LOG_VERBOSE, fmt, ap);
    va_end(ap);
}
