/* SPDX-License-Identifier: MIT */
/* ref_attn.h - attention of the reference device. */
#ifndef REF_ATTN_H
#define REF_ATTN_H

#include "device/device.h"

void cb_ref_attention(struct device *d, const struct attn *a, int n);
void cb_ref_score(struct device *d, const struct score *s);
void cb_ref_join(struct device *d, float *out, float *lse, const float *out2, const float *lse2,
                 int n_row, int hd);
void cb_ref_sink(struct device *d, float *out, float *lse, const float *sink, int n_tok, int n_head,
                 int hd);

#endif
