/* SPDX-License-Identifier: MIT */
/* adapted_product.h - products with a model's matrices, adapters included. */
#ifndef ADAPTED_PRODUCT_H
#define ADAPTED_PRODUCT_H

#include "adapters.h"

/* As op matmul. low[n_tok][model->max_rank]: work space in the device's memory; NULL: the model has
 * no adapters */
void cb_adapted_product(struct device *d, float *low, const struct mm *mm, int n, const float *x,
                        int n_tok);

#endif
