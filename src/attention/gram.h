/* SPDX-License-Identifier: MIT */
/* gram.h - sums of the products of rows with themselves. */
#ifndef GRAM_H
#define GRAM_H

#include <stddef.h>

/* Rows x[n][hd] at a stride in floats: sum[hd] += each row, unless it is NULL; outer[hd][hd] += its
 * products, the lower triangle. Row after row, so that sums do not depend on how many rows a call
 * has. What outer has above its diagonal is not used. hd is at most KV_MAX_HD. */
void cb_gram_add(const float *x, size_t stride, int n, int hd, double *sum, double *outer);

#endif
