/* SPDX-License-Identifier: MIT */
/* topk_heap.h - the k first of many numbers: larger ones first, equal ones by a second number, the
 * larger first, then the lower index, so that the order is total. What is not a number counts as
 * the least there is. */
#ifndef FIRST_H
#define FIRST_H

struct topk_item {
    float x, second;
    int i;
};

/* x[n], second[n] (NULL: all alike) -> the k first of them in no order, out[k]; 0 <= k <= n */
void cb_topk_heap(const float *x, const float *second, int n, int k, struct topk_item *out);
int cb_topk_before(const struct topk_item *a, const struct topk_item *b); /* 1: a comes before b */

#endif
