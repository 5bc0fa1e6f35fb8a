/* SPDX-License-Identifier: MIT */
/* array.h - arrays that grow by doubling. p: the address of the pointer to the first element.
 * CB_ENOMEM leaves the array as it was. */
#ifndef ARRAY_H
#define ARRAY_H

#include <stddef.h>
#include <stdint.h>

/* Room for one element of `size` bytes after the first n. The array has no capacity of its own: it
 * has room for the next power of two, so nothing else allocates it, and it grows one by one. */
int cb_grow_by_one(void *p, size_t n, size_t size);
/* Room for n elements; *cap: how many fit. For arrays that are emptied and used again */
int cb_grow_to(void *p, size_t *cap, size_t n, size_t size);

static inline int cb_grow(void *p, size_t *cap, size_t n, size_t size)
{
    return n <= *cap ? 0 : cb_grow_to(p, cap, n, size);
}

/* (*p)[*n] gets more[n_more] at its end. Such an array is as long as it is. */
int cb_append_i32(int32_t **p, int *n, const int32_t *more, int n_more);

/* The capacity that cb_grow() leaves */
size_t cb_grown_cap(size_t cap, size_t n);

#endif
