/* SPDX-License-Identifier: MIT */
/* norm_rows.c - norms of rows, by the family's kind of norm. */
#include "norm_rows.h"

void cb_norm_rows(struct cb_session *s, const struct norm *w, const float *x, int n_row, int n_tok,
                  int x_stride, float *y, int y_stride)
{
    const int each = w->n_set == 1, rows = each ? n_row : 1;
    const float eps = s->model->hp.norm_eps;

    for (int i = 0; i < (each ? 1 : n_row); i++) {
        const int at = i * w->n, set = i % w->n_set * w->n;
        if (s->model->arch->norm == NORM_LAYER)
            s->dev->ops->layernorm(s->dev, x + at, w->w + set, w->b ? w->b + set : NULL, eps, w->n,
                                   rows, n_tok, x_stride, y + at, y_stride);
        else
            s->dev->ops->rmsnorm(s->dev, x + at, w->w + set, eps, w->n, rows, n_tok, x_stride,
                                 y + at, y_stride);
    }
}
