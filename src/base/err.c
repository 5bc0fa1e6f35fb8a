/* SPDX-License-Identifier: MIT */
/* err.c - the text of a thread's last failure, and allocation that records one. */
#include "err.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shortage.h"
#include "utf8.h"
#include "words.h"

static _Thread_local char last[512];
static _Thread_local int memory_failed;

const char *cb_error(void)
{
    return last;
}

const char *cb_status_text(int status)
{
    static const char *const text[] = {
        "done",
        "no memory",
        "a file could not be read or written",
        "a bad file",
        "not supported",
        "an argument is out of range",
        "does not fit into the context",
        "stopped by a callback",
    };

    if (status <= -(int)(sizeof text / sizeof *text))
        return "unknown error";
    return text[status < 0 ? -status : 0];
}

int cb_fail(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(last, sizeof last, fmt, ap);
    va_end(ap);
    last[cb_utf8_plain(last, strlen(last), "")] = '\0'; /* names from files may be in the text */
    return status;
}

int cb_fail_in(int status, const char *path)
{
    char why[sizeof last], name[sizeof last];

    snprintf(name, sizeof name, "%s", path);
    name[cb_utf8_plain(name, strlen(name), "")] = '\0'; /* as cb_fail() writes it */
    if (cb_begins(last, name))
        return status;
    memcpy(why, last, sizeof why);
    return cb_fail(status, "%s: %s", path, why);
}

static int too_big(size_t n, size_t size)
{
    return size && n > (size_t)PTRDIFF_MAX / size;
}

int cb_memory_failed(void)
{
    return memory_failed;
}

void cb_memory_forget(void)
{
    memory_failed = 0;
}

static void *none(size_t n, size_t size)
{
    memory_failed = 1;
    cb_fail(CB_ENOMEM, "out of memory: %zu x %zu bytes", n, size);
    return NULL;
}

void *cb_calloc(size_t n, size_t size)
{
    void *p = too_big(n, size) ? NULL : calloc(n ? n : 1, size ? size : 1);
    return p ? p : none(n, size);
}

void *cb_realloc(void *p, size_t n, size_t size)
{
    void *q = too_big(n, size) ? NULL : realloc(p, n && size ? n * size : 1);
    return q ? q : none(n, size);
}

void *cb_alloc_aligned(size_t n, size_t size)
{
    void *p = NULL;
    if (too_big(n, size) || posix_memalign(&p, 64, n && size ? n * size : 64))
        return none(n, size);
    return p;
}
