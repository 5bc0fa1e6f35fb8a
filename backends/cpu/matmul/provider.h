/* SPDX-License-Identifier: MIT */
/* provider.h - libraries that can multiply matrices instead of our kernels. */
#ifndef PROVIDER_H
#define PROVIDER_H

#include "device/device.h"

struct provider {
    const char *name; /* as in struct device_want */
    void (*open)(void);
    /* y[n_tok][n_out] at y_stride = x[n_tok][n_in] w[n_out][n_in]^T; add: y += instead of y =. Runs
     * on the calling thread */
    void (*gemm)(int n_tok, int n_out, int n_in, const float *x, const float *w, int add, float *y,
                 int y_stride);
};

extern const struct provider cb_provider_dnnl, cb_provider_blas;

/* The library called `name`; *out NULL = our own kernels (name NULL or "own"). Error: unknown, or
 * not built in */
int cb_provider_choose(const char *name, const struct provider **out);
const char *cb_provider_at(int i); /* names of the built-in libraries; NULL past the last */

enum { PROVIDER_MIN_TOK = 16 }; /* below that unpacking the weights costs more than the product */

size_t cb_provider_scratch(int max_in); /* bytes a thread */
void cb_provider_matmul(struct device *d, const struct provider *p, const struct mm *mm, int n,
                        const float *x, int n_tok);

#endif
