/* SPDX-License-Identifier: MIT */
/* attn_i16.h - attention of a block of keys by products of integers, where an ISA has them. */
#ifndef ATTN_I16_H
#define ATTN_I16_H

#include "kern_vec.h"

/* 32 dims of a block's values: pairs of keys, so that a product sums two, and what a code of each key
 * is worth. */
struct i16_values {
    int16_t code[KEY_BLOCK * 32]; /* [KEY_BLOCK / 2][32][2] */
    float scale[KEY_BLOCK];
};

extern const struct kern_qk cb_qk_q8_avx512, cb_qk_half_avx512;

/* rows -> struct i16_values[hd / 32] */
void cb_pack_v_q8_avx512(const struct kern_rows *v, int hd, void *vp);
void cb_pack_v_half_avx512(const struct kern_rows *v, int hd, void *vp);
void cb_pack_v_i16_avx512(const struct kern_rows *v, int hd, void *vp);
void cb_pv_i16_avx512(const float *s, int rows, int mr, enum kv_type t, const void *vp, int n,
                      int hd_pad, float *o, const float *factor);

/* A row count known when compiling for each height of a tile. */
#define I16_HEIGHT(i, CALL)                                                                        \
    case i:                                                                                        \
        CALL(i);                                                                                   \
        break;
#define I16_HEIGHTS(m, CALL)                                                                       \
    switch (m) {                                                                                   \
        I16_HEIGHT(1, CALL)                                                                        \
        I16_HEIGHT(2, CALL)                                                                        \
        I16_HEIGHT(3, CALL)                                                                        \
        I16_HEIGHT(4, CALL)                                                                        \
        I16_HEIGHT(5, CALL)                                                                        \
        I16_HEIGHT(6, CALL)                                                                        \
        I16_HEIGHT(7, CALL)                                                                        \
        I16_HEIGHT(8, CALL)                                                                        \
        I16_HEIGHT(9, CALL)                                                                        \
        I16_HEIGHT(10, CALL)                                                                       \
        I16_HEIGHT(11, CALL)                                                                       \
        I16_HEIGHT(12, CALL)                                                                       \
    default:                                                                                       \
        break;                                                                                     \
    }

#endif
