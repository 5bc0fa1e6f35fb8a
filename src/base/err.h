/* SPDX-License-Identifier: MIT */
/* err.h - a status code for the kind of a failure, a thread-local text for what failed and why. */
#ifndef ERR_H
#define ERR_H

#include <stddef.h>

#include "ctxbank.h"

/* Records "WHAT: WHY" for cb_error() and returns `status`, so that callers write
 * `return cb_fail(CB_EIO, "%s: %s", path, strerror(errno));`. */
int cb_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Puts the file's name in front of the last failure's text unless it is there. */
int cb_fail_in(int status, const char *path);

/* Forwards a failure. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        const int try_ = (call);                                                                   \
        if (try_ < 0)                                                                              \
            return try_;                                                                           \
    } while (0)

/* Zeroed memory for n * size bytes, checked for overflow; NULL, with cb_error() set, if there is
 * none. Free with free(). */
void *cb_calloc(size_t n, size_t size);
void *cb_realloc(void *p, size_t n, size_t size);
/* 64-byte aligned, not zeroed; free with free(). */
void *cb_alloc_aligned(size_t n, size_t size);

#endif
