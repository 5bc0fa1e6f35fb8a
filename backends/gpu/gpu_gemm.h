/* SPDX-License-Identifier: MIT */
/* gpu_gemm.h - products of a prompt's tokens, where the device multiplies small matrices of halves.
 */
#ifndef GPU_GEMM_H
#define GPU_GEMM_H

#include "gpu.h"

/* Tokens as halves [n][n_in rounded up to 32], each divided by its scale */
struct gpu_tokens {
    const void *half;
    const float *scale;
    int n;
};

/* y = W x, where the weight, its bias and y lie on the device */
struct gpu_product {
    const struct mm *mm;
    const void *weight;
    const float *bias;
    float *y;
};

/* How many of n products of n_tok tokens one launch computes. Weights that are to be copied in are
 * multiplied alone. */
int cb_gpu_gemm_at_once(const struct gpu *g, const struct mm *mm, int n, int n_tok);
void cb_gpu_gemm(struct gpu *g, const struct gpu_product *p, int n, const struct gpu_tokens *x);

#endif
