/* SPDX-License-Identifier: MIT */
/* blas.c - OpenBLAS's sgemm. */
#include <cblas.h>

#include "provider.h"

static void open_blas(void)
{
    openblas_set_num_threads(1); /* each of our threads calls it for itself */
}

static void gemm(int n_tok, int n_out, int n_in, const float *x, const float *w, int add, float *y,
                 int y_stride)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n_tok, n_out, n_in, 1, x, n_in, w, n_in,
                add ? 1 : 0, y, y_stride);
}

const struct provider cb_provider_blas = { "openblas", open_blas, gemm };
