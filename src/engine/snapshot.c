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
    size_t at[]; /* [n] where the areas lie in the file; NOT_THERE */
};

static const size_t NOT_THERE = SIZE_MAX;

/* Where the areas lie -> p->at; returns the length of the file. */
static size_t lay_out(struct snapshot *p, const struct area *a)
{
    size_t end = 0;

    for (int i = 0; i < p->n; i++) {
        p->at[i] = NOT_THERE;
        if (!cb_area_is_rows(a[i].kind) || !cb_pages_begin_at(a[i].at) ||
            a[i].bytes < cb_pages_up(1))
            continue;
        p->at[i] = cb_pages_head(end); /* huge pages begin where they do in a session */
        end = p->at[i] + cb_pages_head(a[i].bytes);
    }
    return end;
}

static int fill(const struct snapshot *p, const struct area *a)
{
    for (int i = 0; i < p->n; i++)
        if (p->at[i] != NOT_THERE)
            TRY(cb_pages_file_put(p->fd, p->at[i], a[i].at, a[i].bytes));
    return CB_OK;
}

struct snapshot *cb_snapshot_take(const struct area *area, int n)
{
    struct snapshot *p =
        n > MOST_AREAS ? NULL : cb_calloc(1, sizeof *p + (size_t)n * sizeof *p->at);
    size_t bytes;

    if (!p)
        return NULL;
    atomic_init(&p->n_user, 1);
    p->n = n;
    bytes = lay_out(p, area);
    p->fd = bytes ? cb_pages_file_open(bytes) : -1;
    if (p->fd >= 0 && !fill(p, area))
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

int cb_snapshot_show(const struct snapshot *p, int i, const struct area *to)
{
    return p && i < p->n && p->at[i] != NOT_THERE && cb_pages_begin_at(to->at) &&
           cb_pages_file_show(p->fd, p->at[i], to->at, to->bytes);
}
