/* SPDX-License-Identifier: MIT */
/* random.c - numbers that nobody can guess. */
#include "random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "err.h"
#include "macos.h"

int cb_random(void *out, size_t n)
{
    for (size_t have = 0; have < n;) {
        const ssize_t got = getrandom((char *)out + have, n - have, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            memset(out, 0, n);
            return cb_fail(CB_EIO, "the system has no random numbers: %s", strerror(errno));
        }
        have += (size_t)got;
    }
    return CB_OK;
}
