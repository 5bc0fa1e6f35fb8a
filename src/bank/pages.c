/* SPDX-License-Identifier: MIT */
/* pages.c - reserved address space whose pages become memory when they are first written. */
#include "pages.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/linux_flags.h"
#include "base/macos.h"

#if defined(__linux__) && !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE 25 /* headers may be older than the kernel */
#elif !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE MADV_NORMAL
#endif

enum { HUGE_PAGE = 2 << 20 };

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

size_t cb_pages_up(size_t n)
{
    const size_t p = page_size();
    return (n + p - 1) / p * p;
}

/* Large areas begin on a huge-page boundary. */
int cb_pages_reserve(size_t bytes, void *out)
{
    const size_t spare = bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
    uint8_t *p = mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t skip;

    if (p == MAP_FAILED)
        return cb_fail(CB_ENOMEM, "context bank: cannot reserve %zu bytes: %s", bytes,
                       strerror(errno));
    skip = spare ? (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE : 0;
    if (skip)
        munmap(p, skip);
    p += skip;
    if (spare - skip)
        munmap(p + bytes, spare - skip);
    memcpy(out, &p, sizeof p);
    return CB_OK;
}

void cb_pages_release(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes);
}

size_t cb_pages_head(size_t bytes)
{
    return bytes >= HUGE_PAGE ? (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE
                              : cb_pages_up(bytes);
}

void cb_pages_give_back(uint8_t *from, uint8_t *to)
{
    const size_t p = page_size();
    uint8_t *a = from + (p - (uintptr_t)from % p) % p, *b = to - (uintptr_t)to % p;
    if (a < b)
        madvise(a, (size_t)(b - a), MADV_DONTNEED);
}

void cb_pages_scattered(uint8_t *from, size_t bytes)
{
    const size_t before = (uintptr_t)from % page_size();

    madvise(from - before, bytes + before, MADV_RANDOM);
}

void cb_pages_ahead(const uint8_t *from, size_t bytes)
{
    const size_t before = (uintptr_t)from % page_size();

    madvise((void *)((uintptr_t)from - before), bytes + before, MADV_WILLNEED);
}

int cb_pages_on_disk(uint8_t *from, size_t bytes)
{
    enum { LOOK = 64 };
    const size_t p = page_size(), most = LOOK * p;
    unsigned char in[LOOK];

    from += (p - (uintptr_t)from % p) % p;
    bytes = bytes / p * p;
    bytes = bytes < most ? bytes : most;
    if (!bytes || mincore(from, bytes, in))
        return 0;
    for (size_t i = 0; i < bytes / p; i++)
        if (!(in[i] & 1))
            return 1;
    return 0;
}

/* Linux 6.1 and later collapse pages on request; elsewhere they stay small. */
void cb_pages_collapse(uint8_t *from, uint8_t *to)
{
    uint8_t *a = from + (HUGE_PAGE - (uintptr_t)from % HUGE_PAGE) % HUGE_PAGE;
    uint8_t *b = to - (uintptr_t)to % HUGE_PAGE;

    if (a < b)
        madvise(a, (size_t)(b - a), MADV_COLLAPSE);
}

int cb_pages_begin_at(const void *at)
{
    return (uintptr_t)at % page_size() == 0;
}

/* ---- files in memory ---- */

int cb_pages_file_open(size_t bytes)
{
    const int fd = memfd_create("ctxbank", MFD_CLOEXEC);

    if (fd < 0 || !ftruncate(fd, (off_t)bytes))
        return fd;
    close(fd);
    return -1;
}

/* Sessions that show it then find huge pages there: their own are collapsed after a prompt, which
 * would copy them. */
static void collapse_file(int fd, size_t at, size_t bytes)
{
    uint8_t *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)at);

    if (p == MAP_FAILED)
        return;
    madvise(p, bytes, MADV_COLLAPSE);
    munmap(p, bytes);
}

int cb_pages_file_put(int fd, size_t at, const void *from, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        const ssize_t n =
            pwrite(fd, (const uint8_t *)from + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return cb_fail(CB_ENOMEM, "context bank: no memory for a copy: %s", strerror(errno));
        done += (size_t)n;
    }
    if (at % HUGE_PAGE == 0 && bytes >= HUGE_PAGE)
        collapse_file(fd, at, bytes / HUGE_PAGE * HUGE_PAGE);
    return CB_OK;
}

int cb_pages_file_show(int fd, size_t at, void *to, size_t bytes)
{
    return mmap(to, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
                (off_t)at) != MAP_FAILED;
}

void cb_pages_file_close(int fd)
{
    if (fd >= 0)
        close(fd);
}
