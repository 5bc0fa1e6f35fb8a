/* SPDX-License-Identifier: MIT */
/* norm_rows.h - norms of rows of numbers. */
#ifndef NORM_ROWS_H
#define NORM_ROWS_H

#include "session.h"

/* Norms n_row rows of each of n_tok tokens: rows r, r + n_set, .. with set r % n_set of weights.
 * Strides are in floats, from token to token; y may be x. */
void cb_norm_rows(struct cb_session *s, const struct norm *w, const float *x, int n_row, int n_tok,
                  int x_stride, float *y, int y_stride);

#endif
