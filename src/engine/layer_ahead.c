/* SPDX-License-Identifier: MIT */
/* layer_ahead.c - prefetches the weights and stored rows of a prompt's next layer to the device,
 * while the present layer computes. */
#include "layer_ahead.h"

#include <stdlib.h>

#include "attention/attend.h"
#include "base/err.h"
#include "base/ints.h"
#include "model/weights.h"

static const struct device_memory *memory_of(const struct cb_model *m)
{
    const struct device_memory *mem = m->dev->ops->memory;
    return mem && mem->weights_share ? mem : NULL;
}

/* The matrices of a layer; w NULL: no memory */
static struct layer_weights matrices(const struct cb_model *m, int l)
{
    struct layer_weights y = { 0 };
    struct weight *w;
    int most = 0;

    while (cb_weights_at(&m->layer[l], most, m->hp.moe.n_expert))
        most++;
    y.w = cb_calloc((size_t)most + 1, sizeof *y.w);
    for (int i = 0; y.w && (w = cb_weights_at(&m->layer[l], i, m->hp.moe.n_expert)); i++)
        if (w->raw)
            y.w[y.n++] = w;
    return y;
}

static void free_all(struct layer_weights *all, int n)
{
    for (int l = 0; all && l < n; l++)
        free(all[l].w);
    free(all);
}

/* Those of all layers; NULL: no memory */
static struct layer_weights *all_matrices(const struct cb_model *m)
{
    struct layer_weights *all = cb_calloc((size_t)m->hp.n_layer, sizeof *all);

    for (int l = 0; all && l < m->hp.n_layer; l++) {
        all[l] = matrices(m, l);
        if (all[l].w)
            continue;
        free_all(all, l);
        return NULL;
    }
    return all;
}

/* Rows of two layers, of which each holds n tokens */
static uint64_t rows_of_two(const struct cb_session *s, int n)
{
    uint64_t most = 0;

    for (int l = 0; l < s->model->hp.n_layer; l++) {
        const struct store *st = &s->bank.store[l];
        const int window = cb_attend_forgets(&s->attention, l);
        const int held = window ? min_int(n, window + s->chunk) : n;
        const uint64_t bytes = (uint64_t)held * (uint64_t)st->n_kv * cb_store_slot_bytes(st);
        most = bytes > most ? bytes : most;
    }
    return 2 * most;
}

static void share(struct cb_session *s, const struct device_memory *mem, int n_tok)
{
    const int n = s->model->hp.n_layer;
    struct layer_weights *all = all_matrices(s->model);

    if (all)
        mem->weights_share(s->dev, all, n, n_tok, rows_of_two(s, s->bank.n_seen + s->bank.n_feed));
    free_all(all, n);
}

static void name(struct cb_session *s, const struct device_memory *mem, int l)
{
    const struct layer_weights y = matrices(s->model, l);

    if (y.n)
        mem->weights_ahead(s->dev, y.w, y.n);
    free(y.w);
}

/* Where each layer's rows are copied for each token, tokens have them ahead as well. */
static void name_rows(struct cb_session *s, int l)
{
    if (l == s->model->hp.n_layer)
        s->dev->ops->memory->ahead(s->dev, NULL, 0);
    else if (s->bank.n_seen && (!s->bank.decoding || s->model->stream_kv))
        cb_attention_rows_ahead(&s->attention, l);
}

void cb_layer_ahead(struct cb_session *s, int l, int n_tok)
{
    const struct device_memory *mem = memory_of(s->model);
    const int weights = !s->bank.decoding;

    if (!mem)
        return;
    if (!l && weights)
        share(s, mem, n_tok);
    for (int m = l ? l + 1 : 0; m <= l + 1; m++) {
        if (weights && m < s->model->hp.n_layer)
            name(s, mem, m);
        name_rows(s, m);
    }
}

void cb_layer_ahead_end(struct cb_session *s)
{
    const struct device_memory *mem = memory_of(s->model);

    if (mem && !s->bank.decoding)
        mem->weights_share(s->dev, NULL, 0, 0, 0);
}

int cb_layer_ahead_plan(const struct cb_session *s, int n, uint64_t more, uint64_t *weights,
                        uint64_t *ahead)
{
    const struct cb_model *m = s->model;
    const struct device_memory *mem = memory_of(m);
    struct layer_weights *all;
    int err;

    *weights = cb_device_traffic(m->dev).weights_bytes;
    *ahead = 0;
    if (!mem)
        return CB_OK;
    if (!(all = all_matrices(m)))
        return CB_ENOMEM;
    err = mem->weights_plan(m->dev, all, m->hp.n_layer, min_int(n, s->chunk), rows_of_two(s, n),
                            more, weights, ahead);
    free_all(all, m->hp.n_layer);
    return err;
}
