/* SPDX-License-Identifier: MIT */
/* adapted_product.c - products with a model's matrices. An adapter's is added as two products of
 * its low rank, so the weights stay as they are in the file. */
#include "adapted_product.h"

/* mm->y += scale * B (A x) */
static void add_lora(struct device *d, float *low, const struct lora *y, const struct mm *mm,
                     const float *x, int n_tok)
{
    const int rank = y->a.n_out;
    const struct mm a = { &y->a, NULL, low, rank, 0, mm->bits };
    const struct mm b = { &y->b, NULL, mm->y, mm->y_stride, 1, mm->bits };

    d->ops->matmul(d, &a, 1, x, n_tok);
    if (y->scale != 1)
        d->ops->scale(d, low, y->scale, 0, (size_t)n_tok * (size_t)rank);
    d->ops->matmul(d, &b, 1, low, n_tok);
}

void cb_adapted_product(struct device *d, float *low, const struct mm *mm, int n, const float *x,
                        int n_tok)
{
    d->ops->matmul(d, mm, n, x, n_tok);
    for (int i = 0; i < n; i++)
        for (const struct lora *y = mm[i].w->lora; y; y = y->next)
            add_lora(d, low, y, &mm[i], x, n_tok);
}
