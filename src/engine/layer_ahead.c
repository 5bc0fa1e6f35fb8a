/* SPDX-License-Identifier: MIT */
/* layer_ahead.c - a prompt's next layer, whose weights come to the device while the last one
 * computes. */
#include "layer_ahead.h"

#include <stdlib.h>

#include "base/err.h"
#include "model/weights.h"

/* The *n matrices of a layer; NULL: no memory */
static const struct weight **list(const struct cb_model *m, int l, int *n)
{
    const struct weight **all;
    struct weight *w;
    int most = 0;

    *n = 0;
    while (cb_weights_at(&m->layer[l], most, m->hp.moe.n_expert))
        most++;
    all = cb_calloc((size_t)most + 1, sizeof *all);
    for (int i = 0; all && (w = cb_weights_at(&m->layer[l], i, m->hp.moe.n_expert)); i++)
        if (w->raw)
            all[(*n)++] = w;
    return all;
}

static void name(struct cb_session *s, int l, int n_tok)
{
    int n;
    const struct weight **w = list(s->model, l, &n);

    if (n)
        s->dev->ops->memory->weights_ahead(s->dev, w, n, n_tok);
    free(w);
}

void cb_layer_ahead(struct cb_session *s, int l, int n_tok)
{
    if (s->bank.decoding || !s->dev->ops->memory || !s->dev->ops->memory->weights_ahead)
        return;
    if (!l)
        name(s, l, n_tok);
    if (l + 1 < s->model->hp.n_layer)
        name(s, l + 1, n_tok);
}

void cb_layer_ahead_end(struct cb_session *s)
{
    if (!s->bank.decoding && s->dev->ops->memory && s->dev->ops->memory->weights_ahead)
        s->dev->ops->memory->weights_ahead(s->dev, NULL, 0, 0);
}

uint64_t cb_layer_ahead_bytes(const struct cb_model *m)
{
    const struct device_memory *mem = m->dev->ops->memory;
    uint64_t most = 0;

    for (int l = 0; mem && mem->weights_room && l < m->hp.n_layer; l++) {
        int n;
        const struct weight **w = list(m, l, &n);
        const uint64_t bytes = w ? mem->weights_room(m->dev, w, n) : 0;
        most = bytes > most ? bytes : most;
        free(w);
    }
    return 2 * most;
}
