/* SPDX-License-Identifier: MIT */
/* eigen.c - Jacobi's method: rotations of two rows and columns make one number off the diagonal
 * after the other 0, until all of them are small. */
#include "eigen.h"

#include <math.h>
#include <string.h>

enum { SWEEPS = 30 }; /* some 8 suffice */

/* x, y = c x - s y, s x + c y */
static void rotate(double *restrict x, double *restrict y, int n, double c, double s)
{
    for (int i = 0; i < n; i++) {
        const double z = x[i];
        x[i] = c * z - s * y[i];
        y[i] = s * z + c * y[i];
    }
}

/* Makes a[p][q] 0. */
static void annul(double *a, int n, int p, int q, double *v)
{
    double *x = a + (size_t)p * (size_t)n, *y = a + (size_t)q * (size_t)n;
    const double pp = x[p], qq = y[q], pq = x[q], half = (qq - pp) / (2 * pq);
    const double t = copysign(1 / (fabs(half) + sqrt(half * half + 1)), half);
    const double c = 1 / sqrt(t * t + 1), s = t * c;

    rotate(x, y, n, c, s);
    for (int i = 0; i < n; i++) { /* the columns are the rows */
        a[(size_t)i * (size_t)n + (size_t)p] = x[i];
        a[(size_t)i * (size_t)n + (size_t)q] = y[i];
    }
    x[p] = pp - t * pq;
    y[q] = qq + t * pq;
    x[q] = y[p] = 0;
    rotate(v + (size_t)p * (size_t)n, v + (size_t)q * (size_t)n, n, c, s);
}

void cb_eigen(double *a, int n, double *v, double *value)
{
    const size_t row = (size_t)n;
    double trace = 0;
    int left = 1;

    memset(v, 0, row * row * sizeof *v);
    for (size_t i = 0; i < row; i++) {
        v[i * row + i] = 1;
        trace += fabs(a[i * row + i]);
    }
    for (int sweep = 0; left && sweep < SWEEPS; sweep++) {
        left = 0;
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++) {
                if (!(fabs(a[(size_t)p * row + (size_t)q]) > 1e-12 * trace))
                    continue;
                annul(a, n, p, q, v);
                left = 1;
            }
    }
    for (size_t i = 0; i < row; i++)
        value[i] = a[i * row + i];
}
