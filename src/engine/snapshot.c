/* SPDX-License-Identifier: MIT */
/* snapshot.c - rows that copies of a session share: a file in memory, which each copy maps
 * privately. Taking it costs a copy of the rows; a copy of the session then costs nothing but the
 * pages that it writes to. */
#include "snapshot.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "bank/pages.h"
#include "base/err.h"
#include "base/ints.h"

/* Each area that is shown takes one of the mappings that a process may have (65,530). */
enum { MOST_AREAS = 2048 };

struct snapshot {
    atomic_int n_user;
    int fd, n;
    struct {
        struct area of; /* its memory may be gone */
        size_t at;      /* where it lies in the file */
    } area[];           /* [n] */
};

/* Which areas the file holds, and where -> p; returns the length of the file. */
static size_t lay_out(struct snapshot *p, const struct area *a, int n)
{
    size_t end = 0;

    for (int i = 0; i < n; i++) {
        if (!cb_area_is_rows(a[i].kind) || !cb_pages_begin_at(a[i].at) ||
            a[i].bytes < cb_pages_up(1))
            continue;
        p->area[p->n].of = a[i];
        p->area[p->n].at = cb_pages_head(end); /* huge pages begin where they do in a session */
        end = p->area[p->n++].at + cb_pages_head(a[i].bytes);
    }
    return end;
}

static int fill(const struct snapshot *p)
{
    for (int i = 0; i < p->n; i++)
        TRY(cb_pages_file_put(p->fd, p->area[i].at, p->area[i].of.at, p->area[i].of.bytes));
    return CB_OK;
}

struct snapshot *cb_snapshot_take(const struct area *area, int n)
{
    struct snapshot *p =
        n > MOST_AREAS ? NULL : cb_calloc(1, sizeof *p + (size_t)n * sizeof *p->area);
    size_t bytes;

    if (!p)
        return NULL;
    atomic_init(&p->n_user, 1);
    bytes = lay_out(p, area, n);
    p->fd = bytes ? cb_pages_file_open(bytes) : -1;
    if (p->fd >= 0 && !fill(p))
        return p;
    cb_snapshot_drop(&p);
    return NULL;
}

struct snapshot *cb_snapshot_share(struct snapshot *p)
{
    if (p)
        atomic_fetch_add_explicit(&p->n_user, 1, memory_order_relaxed);
    return p;
}

void cb_snapshot_drop(struct snapshot **p)
{
    struct snapshot *old = *p;

    *p = NULL;
    if (!old || atomic_fetch_sub_explicit(&old->n_user, 1, memory_order_acq_rel) > 1)
        return;
    cb_pages_file_close(old->fd); /* what is shown stays */
    free(old);
}

int cb_snapshot_has_others(const struct snapshot *p)
{
    return p && atomic_load_explicit(&p->n_user, memory_order_relaxed) > 1;
}

static int is_same(const struct area *a, const struct area *b)
{
    return a->kind == b->kind && a->layer == b->layer && a->head == b->head && a->from == b->from;
}

size_t cb_snapshot_show(const struct snapshot *p, const struct area *to)
{
    for (int i = 0; p && i < p->n; i++) {
        const size_t bytes = min_size(p->area[i].of.bytes, to->bytes);
        if (is_same(&p->area[i].of, to))
            return cb_pages_begin_at(to->at) &&
                           cb_pages_file_show(p->fd, p->area[i].at, to->at, bytes)
                       ? bytes
                       : 0;
    }
    return 0;
}
