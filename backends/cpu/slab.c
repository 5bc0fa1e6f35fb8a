/* SPDX-License-Identifier: MIT */
/* slab.c - allocations cut from large anonymous mappings. Matrices are often smaller than a 2 MiB
 * page, so they share pages in load order. */
#include "slab.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/linux_flags.h"

struct slab {
    struct slab *next;
    char *map, *base; /* base: the first 2 MiB boundary */
    size_t map_bytes, bytes, used;
    int live; /* live pieces */
};

enum { HUGE_PAGE = 2 << 20, SLAB_BYTES = 64 << 20 };

static struct slab *slab_new(size_t bytes)
{
    struct slab *s = cb_calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->bytes = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
    s->map_bytes = s->bytes + HUGE_PAGE;
    s->map = mmap(NULL, s->map_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->map == MAP_FAILED) {
        cb_fail(CB_ENOMEM, "%zu bytes for weights: %s", s->map_bytes, strerror(errno));
        free(s);
        return NULL;
    }
    s->base = s->map + (HUGE_PAGE - (uintptr_t)s->map % HUGE_PAGE) % HUGE_PAGE;
    madvise(s->base, s->bytes, MADV_HUGEPAGE); /* only a hint: small pages work too */
    return s;
}

void *cb_slab_alloc(struct slab **list, size_t bytes)
{
    struct slab *s = *list;

    if (bytes > SIZE_MAX / 2) {
        cb_fail(CB_ENOMEM, "%zu bytes for weights: too many", bytes);
        return NULL;
    }
    bytes = (bytes + 63) & ~(size_t)63;
    if (!s || s->bytes - s->used < bytes) {
        s = slab_new(bytes);
        if (!s)
            return NULL;
        s->next = *list;
        *list = s;
    }
    s->live++;
    s->used += bytes;
    return s->base + s->used - bytes;
}

static void slab_free(struct slab *s)
{
    munmap(s->map, s->map_bytes);
    free(s);
}

void cb_slab_release(struct slab **list, const void *p)
{
    for (struct slab **at = list; *at; at = &(*at)->next) {
        struct slab *s = *at;
        if ((const char *)p < s->base || (const char *)p >= s->base + s->bytes)
            continue;
        if (--s->live == 0) {
            *at = s->next;
            slab_free(s);
        }
        return;
    }
}

void cb_slab_free_all(struct slab **list)
{
    while (*list) {
        struct slab *s = *list;
        *list = s->next;
        slab_free(s);
    }
}
