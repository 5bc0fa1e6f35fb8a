/* SPDX-License-Identifier: MIT */
/* first.h - the k first of many numbers: larger ones first, equal ones by a second number, the larger first,
 * then the lower index, so that the order is total. What is not a number counts as the least there is. */
#ifndef FIRST_H
#define FIRST_H

struct first {
    float x, second;
    int i;
};

/* x[n], second[n] (NULL: all alike) -> the k first of them in no order, out[k]; 0 <= k <= n */
void cb_first(const float *x, const float *second, int n, int k, struct first *out);
int cb_first_before(const struct first *a, const struct first *b); /* 1: a comes before b */

#endif
