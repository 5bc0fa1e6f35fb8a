/* SPDX-License-Identifier: MIT */
/* product.c - products with small matrices, each with inputs of its own. */
#include "product.h"

static int has_lora(const struct mm *mm, int n)
{
    for (int i = 0; i < n; i++)
        if (mm[i].w->lora)
            return 1;
    return 0;
}

void cb_product_sets(struct cb_session *s, const struct mm *mm, int n, const float *x, int x_step,
                     int x_stride, int n_tok)
{
    const size_t bytes = (size_t)mm->w->n_in * sizeof *x;

    if (s->dev->ops->matmul_sets && !has_lora(mm, n)) {
        s->dev->ops->matmul_sets(s->dev, mm, n, x, (size_t)x_step, (size_t)x_stride, n_tok);
        return;
    }
    for (int i = 0; i < n; i++) {
        cb_device_copy_rows(s->dev, s->w.latent, bytes, x + (size_t)i * (size_t)x_step,
                            (size_t)x_stride * sizeof *x, bytes, n_tok);
        cb_product(s, &mm[i], 1, s->w.latent, n_tok);
    }
}
