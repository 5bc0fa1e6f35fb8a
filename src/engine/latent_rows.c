/* SPDX-License-Identifier: MIT */
/* latent_rows.c - latent attention before and after the op. A row is n_rot numbers that rotate,
 * and the latent. The logit of a head's unrotated query with a key that the head would make of the
 * latent, q . (U latent), is that of U^T q with the latent itself: so a query becomes its rotated
 * part and U^T q, and all heads attend to the rows as they are. What a head has read, a mean of
 * rows, becomes the mean of its values in the same way. Each head has small matrices of its own. */
#include "latent_rows.h"

#include "base/ints.h"
#include "product.h"
#include "selector_rows.h"

enum { HEADS = 64 }; /* that a call multiplies */

/* Numbers of all heads, at these strides in floats */
struct of_heads {
    float *at;
    int step, stride; /* from head to head, from token to token */
};

/* Each head's y[n][n_out] = its x[n][n_in] times its matrix */
static void multiply(struct cb_session *s, const struct weight *w, struct of_heads x,
                     struct of_heads y, int n, int bits)
{
    const int n_head = s->model->hp.n_head;
    struct mm mm[HEADS];

    for (int h = 0; h < n_head; h += HEADS) {
        const int n_mm = min_int(HEADS, n_head - h);
        for (int i = 0; i < n_mm; i++)
            mm[i] = (struct mm){ &w[h + i], NULL, y.at + (size_t)(h + i) * (size_t)y.step,
                                 y.stride,  0,    bits };
        cb_product_sets(s, mm, n_mm, x.at + (size_t)h * (size_t)x.step, x.step, x.stride, n);
    }
}

/* in[n][n_embd] -> queries of all heads as files make them, w.att[n][n_head * (key + n_rot)] */
static void queries(struct cb_session *s, const struct layer *y, const float *in, int n, int bits)
{
    const struct latent *x = y->latent;
    const int low = x->q_low.n_out;
    struct work *w = &s->w;
    const struct mm first = { &x->q_low, NULL, w->latent, low, 0, bits };
    const struct mm all = { &y->q, NULL, w->att, y->q.n_out, 0, bits };

    if (x->q_low.raw) {
        cb_product(s, &first, 1, in, n);
        s->dev->ops->rmsnorm(s->dev, w->latent, x->q_low_norm.w, s->model->hp.latent.eps, low, 1, n,
                             low, w->latent, low);
    }
    cb_product(s, &all, 1, x->q_low.raw ? w->latent : in, n);
}

/* Numbers from..from+m-1 of each head's query, as queries() leaves them -> y, whose heads are
 * `head` numbers apart */
static void take_heads(struct cb_session *s, int n, int from, int m, float *y, int head, int stride)
{
    const struct hparams *hp = &s->model->hp;
    const int each = hp->latent.key + hp->n_rot;

    for (int h = 0; h < hp->n_head; h++)
        cb_device_copy_rows(s->dev, y + h * head, (size_t)stride * sizeof *y,
                            s->w.att + h * each + from, (size_t)(hp->n_head * each) * sizeof *y,
                            (size_t)m * sizeof *y, n);
}

void cb_latent_rows(struct cb_session *s, const struct layer *y, const float *in, int n, int bits,
                    enum index_part index, int expanded)
{
    const struct hparams *hp = &s->model->hp;
    const struct latent *x = y->latent;
    const int key = hp->latent.key, n_rot = hp->n_rot, hd = hp->hd, each = key + n_rot;
    const int nq = hp->n_head * hd, stride = nq + 2 * hd;
    float *q = s->w.qkv, *row = q + nq;
    const struct mm rows[] = { { &x->k_rot, NULL, row, stride, 0, bits },
                               { &y->k, NULL, row + n_rot, stride, 0, bits } };

    cb_product(s, rows, 2, in, n);
    s->dev->ops->rmsnorm(s->dev, row + n_rot, x->norm.w, hp->latent.eps, hp->latent.rank, 1, n,
                         stride, row + n_rot, stride);
    queries(s, y, in, n, bits);
    if (index) /* before w.latent is work space */
        cb_selector_rows(s, y, in, n, bits, index);
    if (expanded)
        take_heads(s, n, 0, key, q + n_rot, each, stride);
    else
        multiply(s, x->absorb, (struct of_heads){ s->w.att, each, hp->n_head * each },
                 (struct of_heads){ q + n_rot, hd, stride }, n, bits);
    take_heads(s, n, key, n_rot, q, expanded ? each : hd, stride);
}

const float *cb_latent_values(struct cb_session *s, const struct latent *x, int n, int bits)
{
    const struct hparams *hp = &s->model->hp;
    const int width = hp->latent.value;

    multiply(s, x->expand, (struct of_heads){ s->w.att + hp->n_rot, hp->hd, hp->n_head * hp->hd },
             (struct of_heads){ s->w.qkv, width, hp->n_head * width }, n, bits);
    return s->w.qkv;
}
