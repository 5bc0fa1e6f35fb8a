/* SPDX-License-Identifier: MIT */
/* gram.c - sums of the products of rows with themselves. */
#include "gram.h"

#include "device/device.h"

enum { AT_ONCE = 4, LANES = 8 }; /* rows that are added while their sums are at hand */

/* to[n] += the products of x[t][i] with x[t][0..n-1], row after row */
static inline void add_products(const double *x, int hd, int i, int n, double *restrict to)
{
    const double a = x[i], b = x[hd + i], c = x[2 * hd + i], d = x[3 * hd + i];

    for (int j = 0; j < n; j++) {
        double y = to[j];
        y += a * x[j];
        y += b * x[hd + j];
        y += c * x[2 * hd + j];
        to[j] = y + d * x[3 * hd + j];
    }
}

/* In pieces of a fixed length, so that the compiler makes vectors of them */
static void add_outer(const double *x, int hd, double *outer)
{
    for (int i = 0; i < hd; i++, outer += hd) {
        int j = 0;
        for (; j <= i && j + LANES <= hd; j += LANES)
            add_products(x + j, hd, i - j, LANES, outer + j);
        if (j <= i)
            add_products(x + j, hd, i - j, i + 1 - j, outer + j);
    }
}

void cb_gram_add(const float *x, size_t stride, int n, int hd, double *sum, double *outer)
{
    double row[AT_ONCE * KV_MAX_HD];

    for (int t = 0; t < n; t += AT_ONCE) {
        for (int u = 0; u < AT_ONCE; u++) /* rows past the last are 0 */
            for (int i = 0; i < hd; i++) {
                row[u * hd + i] = t + u < n ? (double)x[(size_t)(t + u) * stride + (size_t)i] : 0;
                if (sum)
                    sum[i] += row[u * hd + i];
            }
        add_outer(row, hd, outer);
    }
}
