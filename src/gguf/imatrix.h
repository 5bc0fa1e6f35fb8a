/* SPDX-License-Identifier: MIT */
/* imatrix.h - an importance matrix as llama.cpp writes it: how large the inputs of each matrix were
 * on some text, column by column. Both of its forms are read: GGUF, and the older one (.dat). */
#ifndef IMATRIX_H
#define IMATRIX_H

#include "gguf.h"

struct imatrix;

int cb_imatrix_open(const char *path, struct imatrix **out);
void cb_imatrix_close(struct imatrix *m);

/* Fails if the file has no matrix of g, or one with other columns. */
int cb_imatrix_fits(const struct imatrix *m, const struct gguf *g);

/* Columns of a tensor of n_mat matrices (experts) with rows of n_in: *column is [*n][n_in], *n
 * being n_mat, or 1 for all of them alike. 1 = found, 0 = the file does not have it, negative = it
 * has other columns. */
int cb_imatrix_find(const struct imatrix *m, struct gguf_str name, int64_t n_in, int64_t n_mat,
                    const float **column, int64_t *n);

#endif
