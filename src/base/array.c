/* SPDX-License-Identifier: MIT */
/* array.c - arrays that grow by doubling. */
#include "array.h"

#include <stdint.h>
#include <string.h>

#include "err.h"

enum { FIRST = 16 }; /* elements */

/* p is the address of a pointer to any type, so it is copied byte by byte. */
static int resize(void *p, size_t n, size_t size)
{
    void *list;

    memcpy(&list, p, sizeof list);
    list = cb_realloc(list, n, size);
    if (!list)
        return CB_ENOMEM;
    memcpy(p, &list, sizeof list);
    return CB_OK;
}

int cb_grow_by_one(void *p, size_t n, size_t size)
{
    if (!n)
        return resize(p, FIRST, size);
    return n < FIRST || n & (n - 1) ? CB_OK : resize(p, 2 * n, size);
}

size_t cb_grown_cap(size_t cap, size_t n)
{
    const size_t twice = cap < FIRST ? FIRST : 2 * cap; /* elements in memory: it fits */

    return n <= cap ? cap : n > twice ? n : twice;
}

int cb_grow_to(void *p, size_t *cap, size_t n, size_t size)
{
    const size_t want = cb_grown_cap(*cap, n);

    TRY(resize(p, want, size));
    *cap = want;
    return CB_OK;
}

int cb_append_i32(int32_t **p, int *n, const int32_t *more, int n_more)
{
    int32_t *all = cb_realloc(*p, (size_t)*n + (size_t)n_more + 1, sizeof *all);

    if (!all)
        return CB_ENOMEM;
    if (n_more)
        memcpy(all + *n, more, (size_t)n_more * sizeof *more);
    *p = all;
    *n += n_more;
    return CB_OK;
}
