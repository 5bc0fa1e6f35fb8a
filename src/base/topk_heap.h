/* SPDX-License-Identifier: MIT */
/* topk_heap.h - the first k of many numbers. Larger numbers come first; equal ones are ordered by a
 * second number, larger first, then by lower index, so the order is total. NaN counts as the
 * smallest. */
#ifndef TOPK_HEAP_H
#define TOPK_HEAP_H

struct topk_item {
    float x, second;
    int i;
};

/* x[n], second[n] (NULL: all equal) -> the first k of them, unordered, out[k]; 0 <= k <= n */
void cb_topk_heap(const float *x, const float *second, int n, int k, struct topk_item *out);
int cb_topk_before(const struct topk_item *a, const struct topk_item *b); /* 1: a comes before b */

#endif
