/* SPDX-License-Identifier: MIT */
/* compressed_rows.c - attention over compressed rows before and after the op. A token's row is key
 * and value in one, so what a head reads is rotated as keys are: rotating it back by the query's
 * position leaves numbers that depend on distances alone. The output's matrix is in two: a matrix
 * of low rank for each group of heads, and one for all of them. */
#include "compressed_rows.h"

#include "base/ints.h"
#include "product.h"

enum { GROUPS = 64 }; /* that a call multiplies */

/* What compressors and scoring heads read of a layer's input -> w.made, and the host's copy, of
 * which it makes entries. cs[n]: the rotation of the heads' queries */
static int make(struct cb_session *s, const struct layer *y, const float *in, const float *cs,
                int n, int bits)
{
    const struct compressed *x = y->compressed;
    const struct entry_columns c = cb_entry_columns(x);
    const struct compress_params *p = &s->model->hp.compress;
    const int n_rot = s->rope[y->rope].n_rot;
    float *to = s->w.made;
    const struct mm of_in[] = { { &x->entry.value, NULL, to + c.value, c.n, 0, bits },
                                { &x->entry.logit, NULL, to + c.logit, c.n, 0, bits },
                                { &x->index.value, NULL, to + c.index_value, c.n, 0, bits },
                                { &x->index.logit, NULL, to + c.index_logit, c.n, 0, bits },
                                { &x->weigh, NULL, to + c.weight, c.n, 0, bits } };
    const struct mm of_low = { &x->index_q, NULL, to + c.q, c.n, 0, bits };

    cb_product(s, of_in, x->index.n ? 5 : 2, in, n);
    if (x->index.n) {
        cb_product(s, &of_low, 1, s->w.latent, n);
        s->dev->ops->rope(s->dev, s->model->hp.rope_kind, to + c.q + p->index_hd - n_rot, n,
                          p->n_index, p->index_hd, c.n, n_rot, cs);
    }
    if (s->w.made_host)
        cb_device_copy(s->dev, s->w.made_host, to, (size_t)n * (size_t)c.n * sizeof *to);
    return cb_device_wait(s->dev);
}

const float *cb_compressed_made(const struct cb_session *s)
{
    return s->w.made_host ? s->w.made_host : s->w.made;
}

int cb_compressed_rows(struct cb_session *s, const struct layer *y, const float *in,
                       const float *cs, int n, int bits)
{
    const struct hparams *hp = &s->model->hp;
    const struct compressed *x = y->compressed;
    const int nq = hp->n_head * y->hd, stride = nq + 2 * y->hd, low = x->q_low.n_out;
    struct work *w = &s->w;
    const struct mm first[] = { { &x->q_low, NULL, w->latent, low, 0, bits },
                                { &y->k, NULL, w->qkv + nq, stride, 0, bits } };
    const struct mm all = { &y->q, NULL, w->qkv, stride, 0, bits };

    cb_product(s, first, 2, in, n);
    s->dev->ops->rmsnorm(s->dev, w->latent, x->q_low_norm.w, hp->norm_eps, low, 1, n, low,
                         w->latent, low);
    cb_product(s, &all, 1, w->latent, n);
    return x->ratio ? make(s, y, in, cs, n, bits) : CB_OK;
}

const float *cb_compressed_values(struct cb_session *s, const struct layer *y, const float *cs,
                                  int n, int bits)
{
    const struct hparams *hp = &s->model->hp;
    const struct compressed *x = y->compressed;
    const int nq = hp->n_head * y->hd, n_rot = s->rope[y->rope].n_rot, low = x->group->n_out;
    const int width = x->n_group * low, n_in = x->group->n_in;
    struct work *w = &s->w;
    struct mm mm[GROUPS];

    for (int i = 0; i < n * n_rot; i += 2) {
        w->back[i] = cs[i];
        w->back[i + 1] = -cs[i + 1];
    }
    s->dev->ops->rope(s->dev, s->model->hp.rope_kind, w->att + y->hd - n_rot, n, hp->n_head, y->hd,
                      nq, n_rot, w->back);
    for (int g = 0; g < x->n_group; g += GROUPS) {
        const int n_mm = min_int(GROUPS, x->n_group - g);
        for (int i = 0; i < n_mm; i++)
            mm[i] = (struct mm){ &x->group[g + i], NULL, w->qkv + (g + i) * low, width, 0, bits };
        cb_product_sets(s, mm, n_mm, w->att + (size_t)g * (size_t)n_in, n_in, nq, n);
    }
    return w->qkv;
}
