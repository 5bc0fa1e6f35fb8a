/* SPDX-License-Identifier: MIT */
/* gpu_map.c - rows of the bank that kernels read where they are, in the host's memory. Pages are
 * pinned from the area's first row on, more of them as the area is filled. Whoever gives pages of
 * the bank back says so first (cb_store_wrote), and then they are given up here. */
#include "gpu_map.h"

#include <sys/mman.h>
#include <unistd.h>

enum {
    MORE = 16, /* a part of what is there is pinned beyond what is needed */
    COLD = 16, /* more than this part of pages has to be on the disk */
};

static size_t up(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static size_t mapped(const struct gpu_area *a)
{
    return a->map.n ? a->map.end[a->map.n - 1] : 0;
}

/* A copy may not cross from one pinned piece to the next: as many bytes as it may have */
static size_t copied_at_once(const struct gpu *g, const void *p, size_t bytes)
{
    const struct gpu_area *a = cb_gpu_area(g, p);
    size_t at;

    if (!a)
        return bytes;
    at = (size_t)((const uint8_t *)p - a->rows);
    for (int i = 0; i < a->map.n; i++)
        if (at < a->map.end[i] && bytes > a->map.end[i] - at)
            return a->map.end[i] - at;
    return bytes;
}

/* The rows of a saved bank are mapped from its file. New rows come home later, so one page more may
 * not be in memory yet. */
int cb_gpu_map_is_cold(const struct gpu_area *a, int n)
{
    enum { LOOK = 1024 };
    const size_t want = up(a->row_bytes * (size_t)n), page = up(1);
    size_t all = 0, cold = 0;
    unsigned char in[LOOK];

    if ((uintptr_t)a->rows % page)
        return 0;
    for (size_t at = mapped(a), look; at < want; at += look * page) {
        look = (want - at) / page < LOOK ? (want - at) / page : LOOK;
        if (mincore((void *)(uintptr_t)(a->rows + at), look * page, in))
            return 0;
        for (size_t i = 0; i < look; i++)
            cold += !(in[i] & 1);
        all += look;
    }
    return cold > all / COLD + 1;
}

int cb_gpu_map(struct gpu *g, struct gpu_area *a, int n)
{
    const size_t most = up(a->row_bytes * a->n_row), want = up(a->row_bytes * (size_t)n);
    const size_t has = mapped(a), grown = up(has + has / MORE);
    const size_t end = want > grown ? want : grown < most ? grown : most;
    const uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * up(1);

    if (want <= has)
        return 1;
    if (!g->driver->map || a->map.n == GPU_MOST_MAP || (uintptr_t)a->rows % up(1) ||
        g->mapped_bytes + (end - has) > memory / 2 || g->driver->map(g, a->rows + has, end - has))
        return 0;
    a->map.end[a->map.n++] = end;
    g->mapped_bytes += end - has;
    g->copied_at_once = copied_at_once;
    return 1;
}

int cb_gpu_map_has(const struct gpu_area *a, int row)
{
    return a->row_bytes * ((size_t)row + 1) <= mapped(a);
}

void cb_gpu_unmap(struct gpu *g, struct gpu_area *a)
{
    if (!a->map.n)
        return;
    cb_gpu_meet_ahead(g);
    cb_gpu_finish(g);
    for (int i = 0; i < a->map.n; i++)
        g->driver->unpin(g, a->rows + (i ? a->map.end[i - 1] : 0));
    g->mapped_bytes -= mapped(a);
    a->map.n = 0;
}
