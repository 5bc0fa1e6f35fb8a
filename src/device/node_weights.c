/* SPDX-License-Identifier: MIT */
/* node_weights.c - one copy of the packed weights for several ranks of a machine. It lies in a file
 * without a name, in memory: the first rank writes it, the others open it through /proc. The copy
 * is made of segments, so that its size need not be known before. */
#include "node_weights.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/err.h"
#include "base/linux_flags.h"
#include "par/cpus.h"

enum { LINE = 64, HUGE_PAGE = 2 << 20, SEGMENT = 64 << 20 };

struct segment {
    char *map, *at; /* at: the first boundary of a huge page */
    size_t bytes;
};

struct node_weights {
    struct ops ops; /* first: the device's table is this one */
    const struct ops *inner;
    struct ranks *near; /* NULL: all are loaded */
    int n, leads, fd;
    struct segment *seg; /* [n_seg] */
    size_t n_seg, cap, used, file_bytes;
    struct weight last; /* the device's own copy of the last matrix */
};

/* What a rank says before it shares, and when all are loaded */
struct said {
    uint64_t hash, bytes;
    int64_t pid, fd; /* of the file; fd < 0: it has none */
};

static int load(struct device *d, struct weight *w);

static struct node_weights *weights_of(const struct device *d)
{
    return d && d->ops->load == load ? (struct node_weights *)(uintptr_t)d->ops : NULL;
}

/* ---- the copy ---- */

static int add_segment(struct node_weights *x, size_t bytes)
{
    const int prot = x->leads ? PROT_READ | PROT_WRITE : PROT_READ;
    struct segment s = { .bytes = (bytes + SEGMENT - 1) / SEGMENT * SEGMENT };

    TRY(cb_grow(&x->seg, &x->cap, x->n_seg + 1, sizeof *x->seg));
    if (x->leads && ftruncate(x->fd, (off_t)(x->file_bytes + s.bytes)))
        return cb_fail(CB_ENOMEM, "%zu bytes for weights", s.bytes);
    s.map = mmap(NULL, s.bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
    if (s.map == MAP_FAILED)
        return cb_fail(CB_ENOMEM, "%zu bytes for weights: no address", s.bytes);
    s.at = s.map + (HUGE_PAGE - (uintptr_t)s.map % HUGE_PAGE) % HUGE_PAGE;
    if (mmap(s.at, s.bytes, prot, MAP_SHARED | MAP_FIXED, x->fd, (off_t)x->file_bytes) ==
        MAP_FAILED) {
        munmap(s.map, s.bytes + HUGE_PAGE);
        return cb_fail(CB_ENOMEM, "%zu bytes for weights", s.bytes);
    }
    madvise(s.at, s.bytes, MADV_HUGEPAGE); /* only a hint */
    x->seg[x->n_seg++] = s;
    x->file_bytes += s.bytes;
    x->used = 0;
    return CB_OK;
}

/* Room in the copy, the same on all ranks */
static int place(struct node_weights *x, size_t bytes, void **at)
{
    bytes = (bytes + LINE - 1) / LINE * LINE;
    if (!x->n_seg || x->seg[x->n_seg - 1].bytes - x->used < bytes)
        TRY(add_segment(x, bytes));
    *at = x->seg[x->n_seg - 1].at + x->used;
    x->used += bytes;
    return CB_OK;
}

/* The device's own copy is released when the next one has been made, so that its memory is not
 * returned and asked for again with each matrix. */
static int load(struct device *d, struct weight *w)
{
    struct node_weights *x = weights_of(d);
    struct weight own;

    TRY(x->inner->load(d, w));
    if (!x->near || !w->packed)
        return CB_OK;
    own = *w;
    if (x->last.packed)
        x->inner->unload(d, &x->last);
    x->last = own;
    w->packed = NULL; /* unless it has a place, x->last alone is released */
    TRY(place(x, own.packed_bytes, &w->packed));
    if (x->leads)
        memcpy(w->packed, own.packed, own.packed_bytes);
    return CB_OK;
}

static int is_in_copy(const struct node_weights *x, const void *p)
{
    for (size_t i = 0; i < x->n_seg; i++)
        if ((const char *)p >= x->seg[i].at && (const char *)p < x->seg[i].at + x->seg[i].bytes)
            return 1;
    return 0;
}

static void unload(struct device *d, struct weight *w)
{
    const struct node_weights *x = weights_of(d);

    if (!is_in_copy(x, w->packed)) {
        x->inner->unload(d, w);
        return;
    }
    w->packed = NULL;
    w->packed_bytes = 0;
}

/* ---- who shares ---- */

/* Ranks on different NUMA nodes read their own memory. 0: this one is not bound to a node. */
static int own_node(void)
{
    unsigned char allowed[CB_MAX_CPU] = { 0 };

    return cb_cpus_node("/sys/devices/system/cpu", allowed, cb_cpus_allowed(allowed, CB_MAX_CPU)) +
           1;
}

static int open_file(const struct said *first)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)first->pid, (long long)first->fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* All ranks have said the same, and each has the file. */
static int agree(struct node_weights *x, uint64_t hash, struct said *all)
{
    struct said mine = { .hash = hash, .pid = getpid(), .fd = -1 };
    int same = 1;

    if (x->leads)
        mine.fd = x->fd = hash ? memfd_create("ctxbank-weights", MFD_CLOEXEC) : -1;
    TRY(cb_ranks_share(x->near, &mine, sizeof mine, all));
    for (int i = 0; i < x->n; i++)
        same = same && hash && all[i].hash == all->hash;
    if (same && !x->leads && all->fd >= 0)
        x->fd = open_file(all);
    mine.fd = x->fd;
    TRY(cb_ranks_share(x->near, &mine, sizeof mine, all));
    for (int i = 0; i < x->n; i++)
        same = same && all[i].fd >= 0;
    return same;
}

static void release(struct node_weights *x)
{
    cb_ranks_part(x->near);
    for (size_t i = 0; i < x->n_seg; i++)
        munmap(x->seg[i].map, x->seg[i].bytes + HUGE_PAGE);
    if (x->fd >= 0)
        close(x->fd);
    free(x->seg);
    free(x);
}

static int join(struct node_weights *x, struct ranks *team, uint64_t hash)
{
    struct said *all;
    int same;

    TRY(cb_ranks_near(team, own_node(), &x->near));
    x->n = cb_ranks_n(x->near);
    x->leads = !cb_ranks_me(x->near);
    if (x->n == 1)
        return 0;
    if (!(all = cb_calloc((size_t)x->n, sizeof *all)))
        return CB_ENOMEM;
    same = agree(x, hash, all);
    free(all);
    return same;
}

int cb_node_weights_open(struct device *d, struct ranks *team, uint64_t hash)
{
    struct node_weights *x;
    int same;

    if (cb_ranks_n(team) == 1)
        return CB_OK;
    if (!(x = cb_calloc(1, sizeof *x)))
        return CB_ENOMEM;
    *x = (struct node_weights){ .ops = *d->ops, .inner = d->ops, .fd = -1 };
    same = join(x, team, d->ops->memory ? 0 : hash);
    if (same <= 0) {
        release(x);
        return same;
    }
    x->ops.load = load;
    x->ops.unload = unload;
    d->ops = &x->ops;
    return CB_OK;
}

int cb_node_weights_done(struct device *d)
{
    struct node_weights *x = weights_of(d);
    struct said mine, *all;
    int err;

    if (!x || !x->near)
        return CB_OK;
    if (x->last.packed)
        x->inner->unload(d, &x->last);
    mine = (struct said){ .bytes = x->file_bytes + x->used };
    all = cb_calloc((size_t)x->n, sizeof *all);
    err = all ? cb_ranks_share(x->near, &mine, sizeof mine, all) : CB_ENOMEM;
    for (int i = 0; !err && i < x->n; i++)
        if (all[i].bytes != mine.bytes)
            err = cb_fail(CB_EARG, "ranks: their packed weights differ");
    free(all);
    cb_ranks_part(x->near);
    x->near = NULL;
    close(x->fd); /* the mappings stay */
    x->fd = -1;
    return err;
}

int cb_node_weights_ranks(const struct device *d)
{
    const struct node_weights *x = weights_of(d);

    return x ? x->n : 1;
}

void cb_node_weights_close(struct device *d)
{
    struct node_weights *x = weights_of(d);

    if (!x)
        return;
    d->ops = x->inner;
    release(x);
}
