/* SPDX-License-Identifier: MIT */
/* grow.h - arrays that grow by doubling. */
#ifndef GROW_H
#define GROW_H

#include <stddef.h>

#include "base/err.h"

/* p[*cap] with room for n elements; CB_ENOMEM, with the array as it was, if there is none */
static inline int cb_grow(void **p, size_t *cap, size_t n, size_t size)
{
    size_t want = *cap ? *cap : 64;
    void *q;

    while (want < n)
        want *= 2;
    if (want == *cap)
        return CB_OK;
    q = cb_realloc(*p, want, size);
    if (!q)
        return CB_ENOMEM;
    *p = q;
    *cap = want;
    return CB_OK;
}

#endif
