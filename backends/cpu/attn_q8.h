/* SPDX-License-Identifier: MIT */
/* attn_q8.h - integer products of q8_0 rows, where an ISA has them. */
#ifndef ATTN_Q8_H
#define ATTN_Q8_H

#include "kern_vec.h"

extern const struct kern_qk cb_qk_q8_avx512;
void cb_pack_v_q8_avx512(const struct kern_rows *v, int hd, void *vp);
void cb_pv_q8_avx512(const float *s, int rows, int mr, const void *vp, int n, int hd_pad, float *o,
                     const float *factor);

#endif
