/* SPDX-License-Identifier: MIT */
/* eigen.h - eigenvectors of a symmetric matrix. */
#ifndef EIGEN_H
#define EIGEN_H

/* a[n][n], symmetric, is overwritten. Its eigenvectors become the rows of v[n][n], in no order;
 * they are orthonormal whatever a is. value[n]: the eigenvalues, to 1e-12 of the largest possible.
 */
void cb_eigen(double *a, int n, double *v, double *value);

#endif
