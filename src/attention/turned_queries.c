/* SPDX-License-Identifier: MIT */
/* turned_queries.c - queries at other positions. Keys stay rotated as stored; rotated logits depend
 * only on differences of positions, so a query that is turned reads keys as if these lay
 * elsewhere. */
#include "turned_queries.h"

#include "base/err.h"
#include "state_memory.h"

struct turned_queries {
    float *q;    /* [chunk][n_head * hd] */
    float *turn; /* [chunk][n_rot / 2][2] cos, sin */
};

int cb_turned_queries_open(struct attention *a)
{
    struct turned_queries *x;
    int any = (a->traits & READ_TURNS) != 0;

    for (int l = 0; l < a->bank->n_layer; l++)
        any |= a->plan[l].score.future > 0;
    if (!any)
        return CB_OK;
    if (!(x = a->turned = cb_state_new(sizeof *x)))
        return CB_ENOMEM;
    x->q = cb_state_device(x, a->dev, (size_t)a->chunk * cb_attention_row(a), sizeof *x->q);
    x->turn = cb_state_alloc(x, (size_t)a->chunk * (size_t)a->model->hp.n_rot, sizeof *x->turn);
    return cb_state_status(x);
}

const float *cb_turned_queries(struct attention *a, const struct chunk *c, int from, int shift,
                               int more)
{
    const struct hparams *hp = &a->model->hp;
    const int table = a->model->layer[c->l].rope;
    struct turned_queries *x = a->turned;
    const size_t row = cb_attention_row(a);
    const int n = c->n - from;

    cb_device_copy_rows(a->dev, x->q, row * sizeof *x->q, c->q + (size_t)from * (size_t)c->stride,
                        (size_t)c->stride * sizeof *c->q, row * sizeof *x->q, n);
    if (table < 0)
        return x->q;
    for (int i = 0; i < (more ? n : 1); i++)
        cb_rope_turn(&a->rope[table], -(shift + i * more), x->turn + (size_t)i * (size_t)hp->n_rot);
    a->dev->ops->rope(a->dev, a->model->hp.rope_kind, x->q, more ? n : 1,
                      more ? hp->n_head : n * hp->n_head, hp->hd, (int)row, hp->n_rot, x->turn);
    return x->q;
}
