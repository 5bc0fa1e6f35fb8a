/* SPDX-License-Identifier: MIT */
/* product.h - products with the model's matrices, adapters included. */
#ifndef PRODUCT_H
#define PRODUCT_H

#include "model/adapted_product.h"
#include "session.h"

/* As op matmul; n_tok is at most the session's chunk. */
static inline void cb_product(struct cb_session *s, const struct mm *mm, int n, const float *x,
                              int n_tok)
{
    cb_adapted_product(s->dev, s->w.low, mm, n, x, n_tok);
}

/* As op matmul_sets; w.latent is work space. */
void cb_product_sets(struct cb_session *s, const struct mm *mm, int n, const float *x, int x_step,
                     int x_stride, int n_tok);

#endif
