/* SPDX-License-Identifier: MIT */
/* macos.h - calls and flags that Linux and FreeBSD have, for macOS, which lacks them or has them in
 * another form. Include it after the system's headers. ctxbank is compiled with macOS's headers,
 * and has not run there. */
#ifndef MACOS_H
#define MACOS_H

#ifdef __APPLE__
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/types.h>
#include <time.h>

#define POLLRDHUP    0
#define SOCK_CLOEXEC 0
#define MFD_CLOEXEC  0

/* At most 256 bytes a call */
static inline ssize_t getrandom(void *out, size_t n, unsigned flags)
{
    const size_t now = n < 256 ? n : 256;

    (void)flags;
    return getentropy(out, now) ? -1 : (ssize_t)now;
}

/* A signal between the two calls ends the wait late: with the next one, or in time. */
static inline int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *in,
                        const sigset_t *mask)
{
    sigset_t before;
    int rc;

    pthread_sigmask(SIG_SETMASK, mask, &before);
    rc = poll(fds, n, in ? (int)(in->tv_sec * 1000 + in->tv_nsec / 1000000) : -1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static inline int memfd_create(const char *name, unsigned flags)
{
    (void)name, (void)flags;
    errno = ENOSYS;
    return -1;
}

static inline void *memrchr(const void *s, int c, size_t n)
{
    const unsigned char *at = s;

    while (n && at[n - 1] != (unsigned char)c)
        n--;
    return n ? (void *)(uintptr_t)(at + n - 1) : NULL;
}

/* qsort_r() with the arguments in glibc's order */
struct macos_order {
    int (*by)(const void *a, const void *b, void *arg);
    void *arg;
};

static inline int macos_compare(void *order, const void *a, const void *b)
{
    const struct macos_order *o = order;

    return o->by(a, b, o->arg);
}

static inline void macos_sort(void *base, size_t n, size_t size,
                              int (*by)(const void *a, const void *b, void *arg), void *arg)
{
    struct macos_order o = { by, arg };

    qsort_r(base, n, size, &o, macos_compare);
}
#define qsort_r macos_sort
#endif

#endif
