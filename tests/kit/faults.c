/* SPDX-License-Identifier: MIT */
/* faults.c - calls that fail when a test wants them to. */
#include "faults.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define WRAPPED(result, name, ...)                                                                 \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

static atomic_int calls[FAULT_KINDS], failed, at, forever;
static _Atomic(int) which = FAULT_KINDS; /* none */

void cb_fault_at(enum fault_kind kind, int nth, int all)
{
    for (int k = 0; k < FAULT_KINDS; k++)
        atomic_store(&calls[k], 0);
    atomic_store(&failed, 0);
    atomic_store(&at, nth);
    atomic_store(&forever, all);
    atomic_store(&which, (int)kind);
}

int cb_fault_end(void)
{
    atomic_store(&which, FAULT_KINDS);
    return atomic_load(&failed);
}

int cb_fault_calls(enum fault_kind kind)
{
    return atomic_load(&calls[kind]);
}

static int fails(enum fault_kind kind, int err)
{
    const int n = atomic_fetch_add(&calls[kind], 1) + 1, nth = atomic_load(&at);

    if (atomic_load(&which) != (int)kind || n < nth || (n > nth && !atomic_load(&forever)))
        return 0;
    atomic_fetch_add(&failed, 1);
    errno = err;
    return 1;
}

WRAPPED(void *, malloc, size_t n)
{
    return fails(FAULT_ALLOC, ENOMEM) ? NULL : __real_malloc(n);
}

WRAPPED(void *, calloc, size_t n, size_t size)
{
    return fails(FAULT_ALLOC, ENOMEM) ? NULL : __real_calloc(n, size);
}

WRAPPED(void *, realloc, void *p, size_t n)
{
    return fails(FAULT_ALLOC, ENOMEM) ? NULL : __real_realloc(p, n);
}

WRAPPED(int, posix_memalign, void **p, size_t align, size_t n)
{
    return fails(FAULT_ALLOC, ENOMEM) ? ENOMEM : __real_posix_memalign(p, align, n);
}

WRAPPED(char *, strdup, const char *s)
{
    return fails(FAULT_ALLOC, ENOMEM) ? NULL : __real_strdup(s);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    unsigned mode;
    va_list ap;

    va_start(ap, flags);
    mode = va_arg(ap, unsigned); /* nobody's, where there is none */
    va_end(ap);
    return fails(FAULT_OPEN, EMFILE) ? -1 : __real_open(path, flags, mode);
}

WRAPPED(DIR *, opendir, const char *path)
{
    return fails(FAULT_OPEN, EMFILE) ? NULL : __real_opendir(path);
}

WRAPPED(ssize_t, pread, int fd, void *to, size_t n, off_t from)
{
    return fails(FAULT_READ, EIO) ? -1 : __real_pread(fd, to, n, from);
}

WRAPPED(struct dirent *, readdir, DIR *d)
{
    return fails(FAULT_READ, EIO) ? NULL : __real_readdir(d);
}

WRAPPED(ssize_t, write, int fd, const void *from, size_t n)
{
    return fails(FAULT_WRITE, ENOSPC) ? -1 : __real_write(fd, from, n);
}

WRAPPED(void *, mmap, void *to, size_t n, int prot, int flags, int fd, off_t from)
{
    return fails(FAULT_MAP, ENOMEM) ? MAP_FAILED : __real_mmap(to, n, prot, flags, fd, from);
}

WRAPPED(ssize_t, getrandom, void *to, size_t n, unsigned flags)
{
    return fails(FAULT_DRAW, ENOSYS) ? -1 : __real_getrandom(to, n, flags);
}
