/* SPDX-License-Identifier: MIT */
/* product.c - products with the model's matrices. An adapter's is added as two products of its low
 * rank, so the weights stay as they are in the file. */
#include "product.h"

#include "model/adapters.h"

/* mm->y += scale * B (A x) */
static void add_lora(struct cb_session *s, const struct lora *y, const struct mm *mm,
                     const float *x, int n_tok)
{
    const struct ops *op = s->dev->ops;
    const int rank = y->a.n_out;
    const struct mm a = { &y->a, NULL, s->w.low, rank, 0, mm->bits };
    const struct mm b = { &y->b, NULL, mm->y, mm->y_stride, 1, mm->bits };

    op->matmul(s->dev, &a, 1, x, n_tok);
    if (y->scale != 1)
        op->scale(s->dev, s->w.low, y->scale, 0, (size_t)n_tok * (size_t)rank);
    op->matmul(s->dev, &b, 1, s->w.low, n_tok);
}

void cb_product(struct cb_session *s, const struct mm *mm, int n, const float *x, int n_tok)
{
    s->dev->ops->matmul(s->dev, mm, n, x, n_tok);
    for (int i = 0; i < n; i++)
        for (const struct lora *y = mm[i].w->lora; y; y = y->next)
            add_lora(s, y, &mm[i], x, n_tok);
}

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
