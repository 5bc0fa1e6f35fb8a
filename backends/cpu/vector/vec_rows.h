/* SPDX-License-Identifier: MIT */
/* vec_rows.h - encodes and decodes a row of keys or values in its stored form, for each ISA. */
#ifndef VEC_ROWS_H
#define VEC_ROWS_H

#include "kern_vec.h"
#include "vec.h"

/* x[hd] -> row, and back to y[hd] */
void VEC_NAME(cb_encode_row_)(enum kv_type t, const float *x, int hd, void *row);
void VEC_NAME(cb_decode_row_)(enum kv_type t, const void *row, int hd, float *y);

#endif
