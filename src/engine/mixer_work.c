/* SPDX-License-Identifier: MIT */
/* mixer_work.c - work space and states of layers that mix tokens without keys. */
#include "mixer_work.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/ints.h"
#include "device/recurrence.h"
#include "stream_work.h"

enum { DEFAULT_LIMIT = 1 << 30 }; /* bytes of checkpoints */

static const struct recurrent *any_mixer(const struct cb_model *m)
{
    for (int l = 0; l < m->hp.n_layer; l++)
        if (m->layer[l].mixer)
            return m->layer[l].mixer;
    return NULL;
}

/* n floats; none: NULL */
static int grow(struct device *d, float **p, size_t n, uint64_t *bytes)
{
    if (!n)
        return CB_OK;
    *p = cb_device_alloc(d, n, sizeof **p);
    *bytes += (uint64_t)n * sizeof **p;
    return *p ? CB_OK : CB_ENOMEM;
}

int cb_mixer_work_open(struct mixer_work *w, const struct cb_model *m, int chunk, uint64_t *bytes)
{
    const struct recurrent *x = any_mixer(m);
    const size_t c = (size_t)chunk;
    size_t conv, out;

    if (!x)
        return CB_OK;
    conv = c * (size_t)x->n_conv;
    out = c * (size_t)x->out.n_in;
    TRY(grow(m->dev, &w->conv, x->kind == MIX_CONV ? 3 * conv : conv, bytes));
    TRY(grow(m->dev, &w->gate, out, bytes));
    if (x->kind == MIX_CONV)
        return CB_OK;
    TRY(grow(m->dev, &w->out, out, bytes));
    TRY(grow(m->dev, &w->decay, c * (size_t)x->rate.n_out, bytes));
    TRY(grow(m->dev, &w->beta, c * (size_t)m->hp.mix.n_head, bytes));
    return grow(m->dev, &w->low, c * (size_t)max_int(x->gate_low.n_out, x->rate_low.n_out), bytes);
}

int cb_mixer_work_draft(struct mixer_work *w, const struct cb_model *m, int n, uint64_t *bytes)
{
    const struct recurrent *x = any_mixer(m);
    const size_t layers = (size_t)m->hp.n_layer;

    if (!x || n <= w->cap_draft)
        return CB_OK;
    *bytes -= layers * (size_t)w->cap_draft * w->kept_row * sizeof *w->kept;
    w->cap_draft = 0;
    free(w->kept);
    w->kept_row = (size_t)x->n_conv * (x->kind == MIX_CONV ? 3 : 1);
    if (x->kind != MIX_CONV)
        w->kept_row += (size_t)x->rate.n_out + (size_t)m->hp.mix.n_head;
    w->kept = cb_alloc_aligned(layers * (size_t)n * w->kept_row, sizeof *w->kept);
    if (!w->kept)
        return CB_ENOMEM;
    w->cap_draft = n;
    *bytes += layers * (size_t)n * w->kept_row * sizeof *w->kept;
    return CB_OK;
}

void cb_mixer_work_close(struct mixer_work *w, struct device *d)
{
    float *const all[] = { w->conv, w->gate, w->out, w->decay, w->beta, w->low };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cb_device_free(d, all[i]);
    free(w->kept);
}

/* Floats of the rows that the convolution of layer l remembers */
static size_t conv_past(const struct cb_model *m, int l)
{
    const struct recurrent *x = m->layer[l].mixer;

    return x ? (size_t)(m->hp.mix.n_tap - 1) * (size_t)x->n_conv : 0;
}

/* The same for its n-grams */
static size_t ngrams_past(const struct cb_model *m, int l)
{
    const struct ngrams *x = m->layer[l].ngrams;

    return x ? (size_t)x->n_most * (size_t)(x->n_tap - 1) * (size_t)m->hp.n_stream *
                   (size_t)m->hp.n_embd
             : 0;
}

float *cb_mixer_states_ngrams(const struct states *s, const struct cb_model *m, int l)
{
    return cb_states_past(s, l) + conv_past(m, l);
}

int cb_mixer_states_open(struct states *s, const struct cb_model *m, uint64_t checkpoint_bytes)
{
    const struct mixer_params *p = &m->hp.mix;
    const size_t n = (size_t)m->hp.n_layer;
    size_t *past, *matrix;
    int err;

    if (!any_mixer(m) && !cb_stream_ngrams(m))
        return CB_OK;
    if (!(past = cb_calloc(2 * n, sizeof *past)))
        return CB_ENOMEM;
    matrix = past + n;
    for (size_t l = 0; l < n; l++) {
        const struct recurrent *x = m->layer[l].mixer;
        past[l] = conv_past(m, (int)l) + ngrams_past(m, (int)l);
        if (x)
            matrix[l] = (size_t)p->n_head * cb_state_floats(p->dk, p->dv);
    }
    err = cb_states_open(s, m->hp.n_layer, past, matrix,
                         checkpoint_bytes ? checkpoint_bytes : DEFAULT_LIMIT);
    free(past);
    return err;
}
