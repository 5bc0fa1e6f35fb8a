/* SPDX-License-Identifier: MIT */
/* ref_rows.h - the stored forms of keys and values on the reference device. */
#ifndef REF_ROWS_H
#define REF_ROWS_H

#include "device/device.h"

/* Row `slot` of rows[][hd] -> y[hd]. */
void cb_ref_kv_row(enum kv_type t, const void *rows, int64_t slot, int hd, float *y);

void cb_ref_kv_encode(struct device *d, enum kv_type t, const float *x, int n, int stride, int hd,
                      void *rows);
void cb_ref_kv_decode(struct device *d, enum kv_type t, const void *rows, const int32_t *idx, int n,
                      int hd, float *y);

#endif
