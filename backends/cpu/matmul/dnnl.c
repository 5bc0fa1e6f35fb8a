/* SPDX-License-Identifier: MIT */
/* dnnl.c - oneDNN's sgemm. */
#include <oneapi/dnnl/dnnl.h>

#include "provider.h"

static void open_dnnl(void)
{
}

static void gemm(int n_tok, int n_out, int n_in, const float *x, const float *w, int add, float *y,
                 int y_stride)
{
    /* cannot fail: shapes are checked when the session is planned */
    (void)dnnl_sgemm('N', 'T', n_tok, n_out, n_in, 1, x, n_in, w, n_in, add ? 1 : 0, y, y_stride);
}

const struct provider cb_provider_dnnl = { "onednn", open_dnnl, gemm };
