/* SPDX-License-Identifier: MIT */
/* repeated.h - long texts of one piece, for readers that must end. */
#ifndef REPEATED_H
#define REPEATED_H

#include <stdlib.h>
#include <string.h>

/* front, s repeated n times, rest; the caller frees it */
static inline char *many(const char *s, size_t n, const char *front, const char *rest)
{
    const size_t len = strlen(s), a = strlen(front);
    char *out = malloc(a + len * n + strlen(rest) + 1), *p = out + a;

    memcpy(out, front, a);
    for (size_t i = 0; i < n; i++, p += len)
        memcpy(p, s, len);
    memcpy(p, rest, strlen(rest) + 1);
    return out;
}

#endif
