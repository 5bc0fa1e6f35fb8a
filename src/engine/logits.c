/* SPDX-License-Identifier: MIT */
/* logits.c - from the states after the last layer to logits, and to callers who ask for those of
 * each token. */
#include "logits.h"

#include <stdlib.h>

#include "alternating.h"
#include "base/err.h"
#include "base/ints.h"
#include "model/head_prune.h"
#include "model/health.h"
#include "norm_rows.h"
#include "product.h"
#include "stream_blend.h"
#include "streams.h"

/* What the model does to its logits; their order stays. */
static void finish_logits(struct cb_session *s, float *logits, int n)
{
    const struct hparams *hp = &s->model->hp;

    if (hp->logit_scale != 1 || hp->logit_cap > 0)
        s->dev->ops->scale(s->dev, logits, hp->logit_scale, hp->logit_cap,
                           (size_t)n * (size_t)hp->n_vocab);
}

/* The states x[n] after the last layer -> w.norm[n][n_embd] */
static int last_norm(struct cb_session *s, const float *x, int n, int bits)
{
    const struct cb_model *m = s->model;
    const struct layer *y = &m->layer[m->hp.n_layer - 1];

    if (y->mix[2])
        return cb_streams_read(s, y->mix[2], x, n, bits, s->w.norm);
    if (y->blend[2])
        TRY(cb_stream_blend_read(s, y->blend[2], x, n, bits, &x));
    if (m->hp.altup) {
        TRY(cb_alternating_end(s, x, n, bits, s->w.norm));
        x = s->w.norm;
    }
    cb_norm_rows(s, &m->out_norm, x, 1, n, m->hp.n_embd, s->w.norm, m->hp.n_embd);
    return CB_OK;
}

int cb_logits_of(struct cb_session *s, const float *x, int n, int bits, float *logits)
{
    const struct cb_model *m = s->model;
    const struct mm mm = { &m->output, m->output_bias, logits, m->hp.n_vocab, 0, bits };

    TRY(last_norm(s, x, n, bits));
    cb_product(s, &mm, 1, s->w.norm, n);
    finish_logits(s, logits, n);
    return CB_OK;
}

int cb_logits_check(const struct cb_session *s, const float *x, size_t n)
{
    return cb_all_finite(x, n) ? CB_OK : cb_model_not_finite(s->model);
}

int cb_logits_top(struct cb_session *s, const float *x, float *logits)
{
    const struct cb_model *m = s->model;

    TRY(last_norm(s, x, 1, s->act_bits));
    cb_head_prune_top(s->dev, m->head_prune, &s->prune_stats, s->top, s->act_bits, s->w.norm,
                      logits);
    finish_logits(s, logits, 1);
    return CB_OK;
}

int cb_logits_all(struct cb_session *s, int n, const struct cb_prefill *how)
{
    const int out = n - s->next.n_tok; /* tokens that were left out, all before these */
    const int n_vocab = s->model->hp.n_vocab, most = min_int(s->chunk, 32);
    float *buf;
    int rc = CB_OK;

    buf = cb_alloc_aligned((size_t)min_int(most, n) * (size_t)n_vocab, sizeof *buf);
    if (!buf)
        return CB_ENOMEM;
    for (int i = how->logits_from; i < n && !rc; i += most) {
        const int m = min_int(most, n - i);
        rc = cb_logits_of(s, s->w.x + (size_t)(i - out) * cb_stream_row(s), m, 0, buf);
        rc = rc ? rc : cb_logits_check(s, buf, (size_t)m * (size_t)n_vocab);
        for (int j = 0; j < m && !rc; j++)
            how->logits(how->logits_arg, i + j, buf + (size_t)j * (size_t)n_vocab);
    }
    free(buf);
    return rc;
}

int cb_logits_states(struct cb_session *s, int n, const struct cb_prefill *how)
{
    const int ne = s->model->hp.n_embd, most = min_int(s->chunk, 32);
    float *buf = cb_alloc_aligned((size_t)min_int(most, n) * (size_t)ne, sizeof *buf);
    int rc = CB_OK;

    if (!buf)
        return CB_ENOMEM;
    for (int i = 0; i < n && !rc; i += most) {
        const int m = min_int(most, n - i);
        rc = last_norm(s, s->w.x + (size_t)i * cb_stream_row(s), m, 0);
        cb_device_copy(s->dev, buf, s->w.norm, (size_t)m * (size_t)ne * sizeof *buf);
        rc = rc ? rc : cb_logits_check(s, buf, (size_t)m * (size_t)ne);
        for (int j = 0; j < m && !rc; j++)
            how->states(how->states_arg, i + j, buf + (size_t)j * (size_t)ne);
    }
    free(buf);
    return rc;
}

int cb_logits_give(struct cb_session *s, const float *last, const struct cb_prefill *how)
{
    const int n = s->bank.n_feed, states = how && how->states;

    if (how && how->logits)
        TRY(cb_logits_all(s, n, how));
    if (states)
        TRY(cb_logits_states(s, n, how));
    else if (s->bank.decoding && s->top && s->model->head_prune)
        TRY(cb_logits_top(s, last, s->w.logits));
    else
        TRY(cb_logits_of(s, last, 1, s->bank.decoding ? s->act_bits : 16, s->w.logits));
    TRY(cb_device_wait(s->dev));
    if (!states && !cb_none_absurd(s->w.logits, (size_t)s->model->hp.n_vocab))
        return cb_model_not_finite(s->model);
    return CB_OK;
}

int cb_logits_fetch(struct cb_session *s, const struct cb_prefill *how)
{
    const int row = (int)cb_stream_row(s);
    float *last = s->w.x + (size_t)(s->next.n_tok - 1) * (size_t)row;

    if (s->bank.decoding || !how || !(how->logits || how->states))
        return s->bank.decoding ? CB_OK : cb_context_split_last(&s->attention, last, row);
    TRY(cb_context_split_gather(&s->attention, s->w.x, row));
    s->next.n_tok = s->bank.n_feed;
    return CB_OK;
}
