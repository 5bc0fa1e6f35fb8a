/* SPDX-License-Identifier: MIT */
/* stop_text.c - texts that end a generation, looked for while it grows. */
#include "stop_text.h"

#include <string.h>

size_t cb_stop_find(const char *s, size_t n, const char *const *stop, int n_stop, int *which)
{
    size_t first = n;

    if (which)
        *which = -1;
    for (int i = 0; i < n_stop; i++) {
        const size_t len = strlen(stop[i]);
        const char *p = len && len <= n ? memmem(s, n, stop[i], len) : NULL;
        if (p && (size_t)(p - s) < first) {
            first = (size_t)(p - s);
            if (which)
                *which = i;
        }
    }
    return first;
}

size_t cb_stop_safe(const char *s, size_t n, const char *const *stop, int n_stop)
{
    size_t safe = n;

    for (int i = 0; i < n_stop; i++) {
        const size_t len = strlen(stop[i]);
        const size_t from = len && n >= len ? n - len + 1 : 0; /* a whole one would be found */
        for (size_t at = from; at < safe; at++)
            if (n - at < len && !memcmp(s + at, stop[i], n - at))
                safe = at;
    }
    return safe;
}
