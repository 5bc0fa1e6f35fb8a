/* SPDX-License-Identifier: MIT */
/* ints.h - the smaller and the larger of two numbers. */
#ifndef INTS_H
#define INTS_H

static inline int min_int(int a, int b)
{
    return a < b ? a : b;
}

static inline int max_int(int a, int b)
{
    return a > b ? a : b;
}

#endif
