/* SPDX-License-Identifier: MIT */
/* page_guard.c - ranges of memory that show files. A handler of signals reads the list while other
 * threads change it: blocks stay in the list until the end, and a range counts while `to` is set.
 */
#include "page_guard.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "err.h"
#include "linux_flags.h"

struct guarded_range {
    atomic_int taken;
    atomic_uintptr_t from, to; /* whole pages; to 0: not in use */
    atomic_int *_Atomic lost;
};

enum { N_RANGE = 64 };

struct guard_block {
    struct guard_block *next;
    uintptr_t page;
    struct guarded_range range[N_RANGE];
};

static struct guarded_range *free_range(struct guard_block *b)
{
    for (int i = 0; i < N_RANGE; i++) {
        int none = 0;
        if (atomic_compare_exchange_strong(&b->range[i].taken, &none, 1))
            return &b->range[i];
    }
    return NULL;
}

static struct guard_block *new_block(struct page_guard *g)
{
    struct guard_block *b = cb_calloc(1, sizeof *b);

    if (!b)
        return NULL;
    b->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    b->next = atomic_load(&g->first);
    while (!atomic_compare_exchange_weak(&g->first, &b->next, b))
        continue;
    return b;
}

struct guarded_range *cb_page_guard_add(struct page_guard *g, const void *at, size_t bytes,
                                        atomic_int *lost)
{
    const uintptr_t from = (uintptr_t)at, to = from + bytes;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct guarded_range *r = NULL;

    for (struct guard_block *b = atomic_load(&g->first); b && !r; b = b->next)
        r = free_range(b);
    for (struct guard_block *b; !r; r = free_range(b))
        if (!(b = new_block(g)))
            return NULL;
    atomic_store(&r->from, from / page * page);
    atomic_store(&r->lost, lost);
    atomic_store(&r->to, (to + page - 1) / page * page);
    return r;
}

void cb_guarded_range_release(struct guarded_range *r)
{
    if (!r)
        return;
    atomic_store(&r->to, 0);
    atomic_store(&r->taken, 0);
}

/* Zeroed memory at [from, to). mmap() is no more than a call of the system: handlers may use it. */
static int put_zeros(uintptr_t from, uintptr_t to)
{
    void *const at = (void *)from; /* NOLINT: the address of a page */

    return mmap(at, to - from, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

int cb_guarded_range_detach(const struct guarded_range *r)
{
    return put_zeros(atomic_load(&r->from), atomic_load(&r->to));
}

/* The file's pages after this one have gone, too. */
static int lose(const struct guard_block *b, struct guarded_range *r, uintptr_t at)
{
    const uintptr_t to = atomic_load(&r->to), from = atomic_load(&r->from);
    atomic_int *lost = atomic_load(&r->lost);

    if (at < from || at >= to || to != atomic_load(&r->to) ||
        !put_zeros(at / b->page * b->page, to))
        return 0;
    atomic_store(lost, 1);
    return 1;
}

int cb_page_guard_lost(struct page_guard *g, const void *at)
{
    for (struct guard_block *b = atomic_load(&g->first); b; b = b->next)
        for (int i = 0; i < N_RANGE; i++)
            if (lose(b, &b->range[i], (uintptr_t)at))
                return 1;
    return 0;
}

void cb_page_guard_close(struct page_guard *g)
{
    struct guard_block *b = atomic_exchange(&g->first, NULL);

    while (b) {
        struct guard_block *next = b->next;
        free(b);
        b = next;
    }
}
