/* SPDX-License-Identifier: MIT */
/* futex.h - threads of this process sleep on a word until its value changes. */
#ifndef FUTEX_H
#define FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleeps while *word is `seen`; ns > 0: at most that long, below a second. May return early. */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t ns)
{
    const struct timespec t = { .tv_nsec = (long)ns };
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, ns > 0 ? &t : NULL, NULL, 0);
}

static inline void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#endif
