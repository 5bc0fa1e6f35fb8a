/* SPDX-License-Identifier: MIT */
/* store_prefetch.c - prefetches the pages of rows, many ranges a call. */
#include "store_prefetch.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "pages.h"
#include "store.h"
#include "store_kivi.h"
#include "store_sketch.h"

enum { MOST = 512, ANY_GAP = 2 /* pages: closer ranges are one */ };

struct prefetch {
    struct iovec v[MOST];
    int n;
    size_t page;
};

/* One call for all ranges; 0: the kernel has none */
#if defined SYS_process_madvise && defined SYS_pidfd_open
static int prefetch_at_once(const struct prefetch *a)
{
    const int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    long done;

    if (self < 0)
        return 0;
    done = syscall(SYS_process_madvise, self, a->v, a->n, MADV_WILLNEED, 0);
    close(self);
    return done > 0;
}
#else
static int prefetch_at_once(const struct prefetch *a)
{
    (void)a;
    return 0;
}
#endif

static void flush(struct prefetch *a)
{
    const int rest = prefetch_at_once(a) ? 0 : a->n;

    for (int i = 0; i < rest; i++)
        madvise(a->v[i].iov_base, a->v[i].iov_len, MADV_WILLNEED);
    a->n = 0;
}

static void add(struct prefetch *a, uint8_t *from, size_t bytes)
{
    const size_t before = (uintptr_t)from % a->page;
    struct iovec *last = a->n ? &a->v[a->n - 1] : NULL;
    uint8_t *page = from - before;

    bytes = (bytes + before + a->page - 1) / a->page * a->page;
    if (last && page >= (uint8_t *)last->iov_base &&
        page <= (uint8_t *)last->iov_base + last->iov_len + ANY_GAP * a->page) {
        if (page + bytes > (uint8_t *)last->iov_base + last->iov_len)
            last->iov_len = (size_t)(page + bytes - (uint8_t *)last->iov_base);
        return;
    }
    if (a->n == MOST)
        flush(a);
    a->v[a->n++] = (struct iovec){ page, bytes };
}

void cb_store_prefetch(const struct store *s, int kv, const int32_t *slot, int n)
{
    struct prefetch a = { .n = 0, .page = cb_pages_up(1) };

    for (int v = 0; v < cb_store_sides(s) && n; v++) {
        const size_t row = v ? s->row_v : s->row_k;
        if (s->kivi && cb_kivi_memory_bytes(s, kv, v))
            add(&a, cb_kivi_memory(s, kv, v), cb_kivi_memory_bytes(s, kv, v));
        if (!slot)
            add(&a, cb_store_row(s, kv, v, 0), row * (size_t)n);
        for (int i = 0; slot && i < n; i++)
            add(&a, cb_store_row(s, kv, v, slot[i]), row);
    }
    if (a.n)
        flush(&a);
}

void cb_store_prefetch_sketches(const struct store *s, int kv)
{
    struct prefetch a = { .n = 0, .page = cb_pages_up(1) };

    add(&a, cb_store_sketch_at(s, kv, 0), (size_t)cb_store_sketch_bytes(s, s->sketched));
    flush(&a);
}
