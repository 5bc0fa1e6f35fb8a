/* SPDX-License-Identifier: MIT */
/* ref.h - what the files of the reference device share. */
#ifndef REF_H
#define REF_H

#include "device/device.h"

/* Row `slot` of rows[][hd] -> y[hd]. */
void cb_ref_kv_row(enum kv_type t, const void *rows, int64_t slot, int hd, float *y);

void cb_ref_attention(struct device *d, const struct attn *a);
void cb_ref_score(struct device *d, const struct score *s);
void cb_ref_join(struct device *d, float *out, float *lse, const float *out2, const float *lse2,
                 int n_row, int hd);

#endif
