/* SPDX-License-Identifier: MIT */
/* guard.c - memory between guard pages. The linker sends the calls of cb_alloc_aligned() and free()
 * here (--wrap), those of the library and those of the test.
 *
 * A buffer is a page with its size, which can only be read, then whole pages with the buffer at
 * their end, then a page that cannot be touched. All buffers lie in one range of addresses, so
 * free() knows them. */
#include "guard.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"

void __real_free(void *p);
void __wrap_free(void *p);
void *__wrap_cb_alloc_aligned(size_t n, size_t size);

enum { PAGE = 4096, LINE = 64, SLACK = 0x6b };
/* Not more: qemu keeps a record of every page. */
static const size_t range_bytes = (size_t)1 << 37;
static const uint32_t not_written = 0x7fa00000; /* a signalling NaN */

static _Atomic(char *) range; /* of addresses; NULL until the first buffer */
static _Atomic size_t used;

static void stop(const char *why)
{
    fprintf(stderr, "guard: %s\n", why);
    abort();
}

static char *map(void *at, size_t bytes, int protection)
{
    char *p = mmap(at, bytes, protection,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
    if (p == MAP_FAILED)
        stop("out of memory");
    return p;
}

static char *open_range(void)
{
    char *p = atomic_load(&range), *mine = p ? p : map(NULL, range_bytes, PROT_NONE);

    if (!p && !atomic_compare_exchange_strong(&range, &p, mine))
        munmap(mine, range_bytes); /* another thread was first */
    return atomic_load(&range);
}

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static void *guarded(size_t bytes)
{
    const size_t inner = pages(bytes), all = inner + 2 * (size_t)PAGE;
    char *head = open_range() + atomic_fetch_add(&used, all), *start = head + PAGE + inner - bytes;

    if (head + all > atomic_load(&range) + range_bytes)
        stop("all addresses are used");
    map(head, PAGE + inner, PROT_READ | PROT_WRITE);
    memcpy(head, &bytes, sizeof bytes);
    mprotect(head, PAGE, PROT_READ);
    memset(head + PAGE, SLACK, inner - bytes);
    for (size_t i = 0; i + sizeof not_written <= bytes; i += sizeof not_written)
        memcpy(start + i, &not_written, sizeof not_written);
    return start;
}

void *cb_guarded(size_t bytes)
{
    return guarded(bytes ? bytes : 1);
}

void *__wrap_cb_alloc_aligned(size_t n, size_t size)
{
    if (size && n > range_bytes / size)
        return cb_calloc(n, size); /* fails with the usual message */
    return cb_guarded((n * size + LINE - 1) / LINE * LINE);
}

void __wrap_free(void *p)
{
    char *at = p, *first = atomic_load(&range), *head;
    size_t bytes;

    if (!first || at < first || at >= first + range_bytes) {
        __real_free(p);
        return;
    }
    head = first + (size_t)(at - first) / PAGE * PAGE - PAGE; /* the slack is less than a page */
    memcpy(&bytes, head, sizeof bytes);
    for (const char *s = head + PAGE; s < at; s++)
        if (*s != SLACK)
            stop("wrote before the start of a buffer");
    map(head, pages(bytes) + 2 * (size_t)PAGE, PROT_NONE);
}
