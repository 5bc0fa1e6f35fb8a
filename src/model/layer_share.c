/* SPDX-License-Identifier: MIT */
/* layer_share.c - cuts a model down to a rank's range of layers. */
#include "layer_share.h"

#include <stdlib.h>

#include "base/err.h"
#include "weights.h"

static int check(const struct cb_model *m, int n_rank)
{
    const struct hparams *hp = &m->hp;
    const char *why = m->dev->ops->memory ? "not yet on a device with memory of its own"
                      : hp->n_shared_kv   ? "layers share keys with others"
                      : hp->n_input       ? "layers are told of tokens"
                      : hp->n_stream > 1  ? "the model has several residual streams"
                      : m->mtp            ? "not yet with the model's own head for later tokens"
                      : m->blocks.start   ? "the model was trained with blocks of layers"
                                          : NULL;

    for (int l = 0; !why && l < hp->n_layer; l++)
        if (m->layer[l].ngrams || m->layer[l].lends || m->layer[l].compressed)
            why = "layers depend on others";
    if (why)
        return cb_fail(CB_EUNSUPPORTED, "split layers: %s", why);
    return n_rank <= hp->n_layer
               ? CB_OK
               : cb_fail(CB_EARG, "split layers: %d ranks, but the model has %d layers", n_rank,
                         hp->n_layer);
}

static uint64_t layer_bytes(const struct cb_model *m, int l)
{
    const struct weight *w;
    uint64_t sum = 0;

    for (int i = 0; (w = cb_weights_at(&m->layer[l], i, m->hp.moe.n_expert)); i++)
        if (w->raw)
            sum += (uint64_t)w->n_out * cb_row_bytes(w->type, w->n_in);
    return sum;
}

/* The layers that policies act on, in the range's numbers */
static int share_global(struct cb_model *m, int lo, int hi)
{
    struct layer_share *s = &m->share;

    s->n_policy = cb_model_policy_layers(m);
    s->policy_first = lo;
    s->n_own = hi - lo;
    if (!m->global)
        return CB_OK;
    s->policy_first = s->n_own = 0;
    if (!(s->at = cb_calloc((size_t)m->n_global, sizeof *s->at)))
        return CB_ENOMEM;
    for (int i = 0; i < m->n_global; i++) {
        s->policy_first += m->global[i] < lo;
        if (m->global[i] >= lo && m->global[i] < hi)
            s->at[s->n_own++] = m->global[i] - lo;
    }
    return s->n_own ? CB_OK
                    : cb_fail(CB_EUNSUPPORTED, "split layers: a rank would have layers with a "
                                               "window alone: use fewer ranks");
}

int cb_layer_share_open(struct cb_model *m, const struct ranks *team)
{
    const int n = m->hp.n_layer, n_rank = cb_ranks_n(team), me = cb_ranks_me(team);
    const int lo = n * me / n_rank, hi = n * (me + 1) / n_rank;

    if (n_rank == 1)
        return CB_OK;
    TRY(check(m, n_rank));
    TRY(share_global(m, lo, hi));
    for (int l = 0; l < n; l++)
        if (l < lo || l >= hi)
            m->weights_bytes -= layer_bytes(m, l);
    if (me && m->output.raw != m->embd.raw)
        m->weights_bytes -=
            (uint64_t)m->output.n_out * cb_row_bytes(m->output.type, m->output.n_in);
    m->share.first = lo;
    m->share.n_all = n;
    m->layer += lo;
    m->hp.n_layer = hi - lo;
    return CB_OK;
}

void cb_layer_share_close(struct cb_model *m)
{
    free(m->share.at);
    m->share.at = NULL;
    if (!m->share.n_all)
        return;
    m->layer -= m->share.first;
    m->hp.n_layer = m->share.n_all;
    m->share.n_all = 0;
}

int cb_layer_share_has_head(const struct cb_model *m)
{
    return !m->share.first;
}
