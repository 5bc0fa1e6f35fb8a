/* SPDX-License-Identifier: MIT */
/* dots_avx512.c - the table of AVX-512's dot products in attention, without VNNI or with it. */
#include "attn_i16.h"
#include "cpu/vector/vec.h"

const struct kern_dots DOT_NAME(cb_dots_) = {
    .qk_q8 = &DOT_NAME(cb_qk_q8_),
    .qk_half = &DOT_NAME(cb_qk_half_),
    .prepack_half = &DOT_NAME(cb_prepack_half_),
    .prepack_q8 = &DOT_NAME(cb_prepack_q8_),
    .pack_v_i16 = DOT_NAME(cb_pack_v_i16_),
    .pv_i16 = DOT_NAME(cb_pv_i16_),
    .sketch = &DOT_NAME(cb_sketch_kern_),
    .index = &DOT_NAME(cb_index_kern_),
};
