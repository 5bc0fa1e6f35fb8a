/* SPDX-License-Identifier: MIT */
/* ints.h - the smaller and the larger of two numbers. */
#ifndef INTS_H
#define INTS_H

#include <stddef.h>

static inline int min_int(int a, int b)
{
    return a < b ? a : b;
}

static inline int max_int(int a, int b)
{
    return a > b ? a : b;
}

static inline size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

#endif
