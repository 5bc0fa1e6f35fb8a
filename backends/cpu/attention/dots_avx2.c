/* SPDX-License-Identifier: MIT */
/* dots_avx2.c - the table of AVX2's dot products in attention, without VNNI or with it. */
#include "attn_i16.h"
#include "cpu/vector/vec.h"

/* VNNI adds nothing to packing. */
const struct kern_dots DOT_NAME(cb_dots_) = {
    .qk_half = &DOT_NAME(cb_qk_half_),
    .prepack_half = &DOT_NAME(cb_prepack_half_),
    .pack_v_i16 = cb_pack_v_i16_avx2,
    .pv_i16 = DOT_NAME(cb_pv_i16_),
    .sketch = &DOT_NAME(cb_sketch_kern_),
    .index = &DOT_NAME(cb_index_kern_),
};
