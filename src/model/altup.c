/* SPDX-License-Identifier: MIT */
/* altup.c - alternating updates of several residual streams, and sparse gates, which Gemma 3n has.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "binder.h"
#include "hparams.h"

/* Files give the deviations of each layer, -inf where its gates are all kept. Those that do not are
 * of models whose first ten layers keep a twentieth. */
static int read_sparsity(const struct cb_model *m, int l, struct ffn *f)
{
    f->deviations = l < 10 ? 1.6448533535003662f : -INFINITY;
    TRY(cb_hp_float_at(m, "activation_sparsity_scale", -INFINITY, 100, l, &f->deviations));
    f->sparse = isfinite(f->deviations);
    return CB_OK;
}

/* n - 1 matrices of one tensor, each [n_embd][n_embd] */
static int bind_ends(struct binder *b, const char *name, struct weight *w)
{
    const int n = b->m->hp.n_stream - 1, ne = b->m->hp.n_embd;
    const struct gguf_tensor *t;

    TRY(cb_bind_need(b, name, &t));
    TRY(cb_bind_check_shape(b, t, name, ne, ne, n));
    for (int i = 0; i < n; i++)
        cb_bind_take_rows(b, t, name, (int64_t)i * ne, ne, &w[i]);
    return CB_OK;
}

/* Coefficients [n_out][n], a few numbers that the host multiplies */
static int bind_coefficients(struct binder *b, const char *name, int n_out, float **out)
{
    const int n = b->m->hp.n_stream;
    const struct gguf_tensor *t;

    TRY(cb_bind_need(b, name, &t));
    TRY(cb_bind_check_shape(b, t, name, n, n_out, 1));
    return cb_bind_f32(b, t, (int64_t)n * n_out, out);
}

/* The rank is what the file has. */
static int bind_laurel(struct binder *b, int l, struct altup *x)
{
    const int ne = b->m->hp.n_embd;
    const struct gguf_tensor *t;
    int rank;

    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, "laurel_l.weight"), &t));
    rank = t->dim[1] > 0 && t->dim[1] <= ne ? (int)t->dim[1] : 1;
    TRY(cb_bind_check_shape(b, t, b->name, ne, rank, 1));
    cb_bind_take_rows(b, t, b->name, 0, rank, &x->low);
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "laurel_r.weight"), rank, ne, &x->high));
    b->m->hp.stream_rank = rank > b->m->hp.stream_rank ? rank : b->m->hp.stream_rank;
    return cb_bind_norm(b, cb_bind_in_layer(b, l, "laurel_post_norm"), REQUIRED, ne,
                        &x->laurel_norm);
}

int cb_altup_bind(struct binder *b, int l, struct layer *y)
{
    const struct hparams *hp = &b->m->hp;
    const int n = hp->n_stream, ne = hp->n_embd;
    struct altup *x = y->altup = cb_calloc(1, sizeof *x);

    if (!x)
        return CB_ENOMEM;
    TRY(read_sparsity(b->m, l, &y->ffn));
    if (l == 0)
        TRY(bind_ends(b, "altup_proj.weight", x->spread));
    if (l == hp->n_layer - 1)
        TRY(bind_ends(b, "altup_unembd_proj.weight", x->merge));
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "altup_router_norm"), REQUIRED, ne,
                     &x->router_norm));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "altup_router.weight"), ne, n, &x->router));
    TRY(bind_coefficients(b, cb_bind_in_layer(b, l, "altup_predict_coef.weight"), n * n,
                          &x->predict));
    TRY(bind_coefficients(b, cb_bind_in_layer(b, l, "altup_correct_coef.weight"), n, &x->correct));
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "altup_correct_scale.weight"), REQUIRED, ne,
                       &x->scale));
    return bind_laurel(b, l, x);
}

struct weight *cb_altup_weight(struct altup *x, int i)
{
    struct weight *const first[] = { &x->router, &x->low, &x->high };

    if (i < 3)
        return first[i];
    i -= 3;
    for (int j = 0; j < MOST_STREAMS && x->spread[j].raw; j++)
        if (!i--)
            return &x->spread[j];
    return i < MOST_STREAMS && x->merge[i].raw ? &x->merge[i] : NULL;
}

void cb_altup_free(struct altup *x)
{
    if (!x)
        return;
    cb_bind_free_norm(&x->router_norm);
    cb_bind_free_norm(&x->laurel_norm);
    free(x->predict);
    free(x->correct);
    free(x->scale);
    free(x);
}
