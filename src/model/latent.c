/* SPDX-License-Identifier: MIT */
/* latent.c - the matrices of latent attention, in the two forms that files have. */
#include <stdlib.h>

#include "base/err.h"
#include "binder.h"
#include "hparams.h"

/* Rows [row, row + w->n_in) of a matrix, transposed, at `to`. F32 stays, and others become F16. */
static void transpose(const struct gguf_tensor *t, int64_t row, float *x, char *to,
                      struct weight *w)
{
    const int n_in = (int)t->dim[0];
    const size_t row_bytes = cb_row_bytes(t->type, n_in);
    float *column = x + n_in;

    w->type = t->type == DT_F32 ? DT_F32 : DT_F16;
    w->raw = to;
    for (int i = 0; i < w->n_in; i++) {
        cb_dtype[t->type].to_f32((const char *)t->data + (size_t)(row + i) * row_bytes, x, n_in);
        for (int c = 0; c < n_in; c++)
            column[(size_t)c * (size_t)w->n_in + (size_t)i] = x[c];
    }
    cb_dtype[w->type].from_f32(column, to, (int64_t)n_in * w->n_in);
}

/* Files of older converters have, for each head, the rows that make its key of the latent and those
 * that make its value. A query wants the former transposed. */
static int split_heads(struct binder *b, int l, struct latent *x)
{
    const struct latent_params *p = &b->m->hp.latent;
    const int n = x->n_head, rows = p->key + p->value;
    const struct gguf_tensor *t;
    size_t each;
    float *work;

    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, "attn_kv_b.weight"), &t));
    TRY(cb_bind_check_shape(b, t, b->name, p->rank, (int64_t)n * rows, 1));
    each =
        (size_t)p->rank * (size_t)p->key * (t->type == DT_F32 ? sizeof(float) : sizeof(uint16_t));
    x->own = cb_alloc_aligned((size_t)n, each);
    work = cb_calloc((size_t)p->rank * (size_t)(p->key + 1), sizeof *work);
    for (int h = 0; x->own && work && h < n; h++) {
        cb_bind_take_rows(b, t, b->name, (int64_t)h * rows, p->key, &x->absorb[h]);
        x->absorb[h].n_in = p->key;
        x->absorb[h].n_out = p->rank;
        transpose(t, (int64_t)h * rows, work, (char *)x->own + (size_t)h * each, &x->absorb[h]);
        cb_bind_take_rows(b, t, b->name, (int64_t)h * rows + p->key, p->value, &x->expand[h]);
    }
    free(work);
    b->m->weights_bytes +=
        (uint64_t)n * each - (uint64_t)n * (uint64_t)p->key * cb_row_bytes(t->type, p->rank);
    return x->own && work ? CB_OK : CB_ENOMEM;
}

/* A matrix [n_out][n_in] of each head */
static int heads(struct binder *b, int l, const char *name, int n_in, int n_out, struct weight *w)
{
    const int n = b->m->hp.n_head;
    const struct gguf_tensor *t;

    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, name), &t));
    TRY(cb_bind_check_shape(b, t, b->name, n_in, n_out, n));
    for (int h = 0; h < n; h++)
        cb_bind_take_rows(b, t, b->name, (int64_t)h * n_out, n_out, &w[h]);
    return CB_OK;
}

static int latent_queries(struct binder *b, int l, struct layer *y)
{
    const struct hparams *hp = &b->m->hp;
    const int low = hp->latent.low, nq = hp->n_head * (hp->latent.key + hp->n_rot);

    if (!low)
        return cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_q.weight"), hp->n_embd, nq, &y->q);
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_q_a.weight"), hp->n_embd, low,
                       &y->latent->q_low));
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "attn_q_a_norm"), REQUIRED, low,
                     &y->latent->q_low_norm));
    return cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_q_b.weight"), low, nq, &y->q);
}

int cb_latent_bind(struct binder *b, int l, struct layer *y)
{
    const struct hparams *hp = &b->m->hp;
    const struct latent_params *p = &hp->latent;
    struct latent *x = y->latent = cb_calloc(1, sizeof *x);
    const struct gguf_tensor *t;

    if (!x || !(x->absorb = cb_calloc((size_t)hp->n_head, sizeof *x->absorb)) ||
        !(x->expand = cb_calloc((size_t)hp->n_head, sizeof *x->expand)))
        return CB_ENOMEM;
    x->n_head = hp->n_head;
    TRY(latent_queries(b, l, y));
    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, "attn_kv_a_mqa.weight"), &t));
    TRY(cb_bind_check_shape(b, t, b->name, hp->n_embd, p->rank + hp->n_rot, 1));
    cb_bind_take_rows(b, t, b->name, 0, p->rank, &y->k);
    cb_bind_take_rows(b, t, b->name, p->rank, hp->n_rot, &x->k_rot);
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "attn_kv_a_norm"), REQUIRED, p->rank, &x->norm));
    if (!cb_bind_find(b, cb_bind_in_layer(b, l, "attn_k_b.weight"))) {
        TRY(split_heads(b, l, x));
    } else {
        TRY(heads(b, l, "attn_k_b.weight", p->key, p->rank, x->absorb));
        TRY(heads(b, l, "attn_v_b.weight", p->rank, p->value, x->expand));
    }
    return cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_output.weight"), hp->n_head * p->value,
                          hp->n_embd, &y->o);
}

void cb_latent_free(struct latent *x)
{
    if (!x)
        return;
    free(x->q_low_norm.w);
    free(x->q_low_norm.b);
    free(x->norm.w);
    free(x->norm.b);
    free(x->absorb);
    free(x->expand);
    free(x->own);
    free(x);
}
