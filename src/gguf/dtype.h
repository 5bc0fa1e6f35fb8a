/* SPDX-License-Identifier: MIT */
/* dtype.h - the element types of tensors in a GGUF file, one table row each. */
#ifndef DTYPE_H
#define DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "half.h"

enum dtype {
    DT_F32,
    DT_F16,
    DT_BF16,
    DT_Q4_0,
    DT_Q4_1,
    DT_Q5_0,
    DT_Q5_1,
    DT_Q8_0,
    DT_Q4_K,
    DT_Q5_K,
    DT_Q6_K,
    DT_ENCODED, /* types from here on are read; `quantize` does not write them, and from_f32 is NULL
                   but for MXFP4 */
    DT_Q2_K = DT_ENCODED,
    DT_Q3_K,
    DT_IQ4_NL,
    DT_IQ4_XS,
    DT_MXFP4,
    DT_TQ1_0,
    DT_TQ2_0,
    DT_IQ1_S,
    DT_IQ1_M,
    DT_IQ2_XXS,
    DT_IQ2_XS,
    DT_IQ2_S,
    DT_IQ3_XXS,
    DT_IQ3_S,
    DT_COUNT,
    DT_I32 = DT_COUNT /* tables of numbers, which no product reads */
};

struct dtype_info {
    const char *name; /* "Q4_K" */
    uint32_t ggml_id; /* number in the file */
    int block;        /* elements in a block */
    int block_bytes;
    /* n is a multiple of block; x need not be aligned */
    void (*to_f32)(const void *x, float *y, int64_t n);
    void (*from_f32)(const float *x, void *y, int64_t n); /* round to nearest, usual scales */
};

extern const struct dtype_info cb_dtype[DT_COUNT + 1];

/* from_f32 for columns that do not matter alike: errors count as column[n] >= 0 says. NULL: the
 * type has none. */
typedef void (*dtype_weighted)(const float *x, const float *column, void *y, int64_t n);
dtype_weighted cb_dtype_weighted(enum dtype t);

int cb_dtype_from_ggml(uint32_t ggml_id);        /* enum dtype, or -1: unknown */
const char *cb_ggml_type_name(uint32_t ggml_id); /* for unsupported types as well; "?" if unknown */

static inline size_t cb_row_bytes(enum dtype t, int64_t n)
{
    return (size_t)(n / cb_dtype[t].block) * (size_t)cb_dtype[t].block_bytes;
}

#endif
