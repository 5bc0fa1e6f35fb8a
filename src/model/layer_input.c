/* SPDX-License-Identifier: MIT */
/* layer_input.c - what each layer is told of a token beside the residual stream (per-layer
 * embeddings of Gemma 3n and 4). */
#include "layer_input.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "hparams.h"

/* What the layer is told of each token. All layers have the rows of one matrix, and one norm. */
int cb_layer_input_bind(struct binder *b, int l, struct layer *y)
{
    const int ne = b->m->hp.n_embd, n = b->m->hp.n_input, n_layer = b->m->hp.n_layer;
    struct layer_input *x = y->input = cb_calloc(1, sizeof *x);
    const struct gguf_tensor *t;

    if (!x)
        return CB_ENOMEM;
    TRY(cb_bind_need(b, "per_layer_model_proj.weight", &t));
    TRY(cb_bind_check_shape(b, t, "per_layer_model_proj.weight", ne, (int64_t)n * n_layer, 1));
    cb_bind_take_rows(b, t, "per_layer_model_proj.weight", (int64_t)l * n, n, &x->of_embd);
    TRY(cb_bind_norm(b, "per_layer_proj_norm", REQUIRED, n, &x->norm));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "inp_gate.weight"), ne, n, &x->gate));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "proj.weight"), n, ne, &x->out));
    return cb_bind_norm(b, cb_bind_in_layer(b, l, "post_norm"), REQUIRED, ne, &x->post_norm);
}

/* A layer's numbers need not begin or end with a block of the type. */
void cb_model_input_row(const struct cb_model *m, int32_t id, int l, float *out)
{
    enum { MOST_BLOCK = 256 };
    const struct weight *w = &m->inputs;
    const int block = cb_dtype[w->type].block, n = m->hp.n_input, from = l * n, end = from + n;
    const char *row = (const char *)w->raw + (size_t)id * cb_row_bytes(w->type, w->n_in);
    float x[MOST_BLOCK];

    for (int at = from; at < end;) {
        const int begin = at / block * block;
        const int some = (begin + block < end ? begin + block : end) - at;
        cb_dtype[w->type].to_f32(row + cb_row_bytes(w->type, begin), x, block);
        memcpy(out + (at - from), x + (at - begin), (size_t)some * sizeof *out);
        at += some;
    }
}

void cb_layer_input_free(struct layer_input *x)
{
    if (!x)
        return;
    cb_bind_free_norm(&x->norm);
    cb_bind_free_norm(&x->post_norm);
    free(x);
}
