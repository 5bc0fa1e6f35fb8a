/* SPDX-License-Identifier: MIT */
/* weights_hash.c - tells models apart whose shape and vocabulary are the same. */
#include <stdlib.h>
#include <xxhash.h>

#include "adapters.h"
#include "base/err.h"
#include "model.h"
#include "par/par.h"

enum { PIECE = 4 << 20 };

struct piece {
    const char *at;
    size_t n;
    uint64_t hash;
};

static void hash_piece(void *ctx, int i, int thread)
{
    struct piece *p = (struct piece *)ctx + i;

    (void)thread;
    p->hash = XXH3_64bits(p->at, p->n);
}

/* Name, type and shape of a tensor, and its pieces -> out; returns their number. out may be NULL */
static size_t cut(const struct gguf_tensor *t, struct piece *out)
{
    size_t n = 0;

    for (size_t at = 0; at < t->size; at += PIECE, n++)
        if (out)
            out[n] = (struct piece){ .at = (const char *)t->data + at,
                                     .n = t->size - at < PIECE ? t->size - at : PIECE };
    return n;
}

/* Goes on from `h` with the tensors of a file; *p: their pieces, which it passes by. */
static uint64_t join_tensors(const struct gguf *g, const struct piece **p, uint64_t h)
{
    for (uint64_t i = 0; i < cb_gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = cb_gguf_tensor_at(g, i);
        const int64_t shape[] = { t->type, t->dim[0], t->dim[1], t->dim[2], t->dim[3] };
        h = XXH3_64bits_withSeed(t->name.s, t->name.n, h);
        h = XXH3_64bits_withSeed(shape, sizeof shape, h);
        for (size_t j = 0, n = cut(t, NULL); j < n; j++, (*p)++)
            h = XXH3_64bits_withSeed(&(*p)->hash, sizeof(*p)->hash, h);
        cb_gguf_release_pages(g, t->data, t->size);
    }
    return h;
}

/* The numbers of metadata that only some layers have */
static uint64_t join_lists(const struct layer *y, uint64_t h)
{
    const struct ngrams *x = y->ngrams;

    if (y->selector && y->selector->ratio)
        h = XXH3_64bits_withSeed(&y->selector->ratio, sizeof y->selector->ratio, h);
    if (!x)
        return h;
    h = XXH3_64bits_withSeed(&x->eos, sizeof x->eos, h);
    h = XXH3_64bits_withSeed(x->mult, (size_t)x->n_most * sizeof *x->mult, h);
    h = XXH3_64bits_withSeed(x->offset, (size_t)x->n_head * sizeof *x->offset, h);
    return XXH3_64bits_withSeed(x->size, (size_t)x->n_head * sizeof *x->size, h);
}

static uint64_t join(const struct cb_model *m, const struct piece *p)
{
    const struct hparams *hp = &m->hp;
    const double numbers[] = { hp->n_rot,
                               hp->window,
                               hp->moe.n_used,
                               (double)hp->norm_eps,
                               (double)hp->attn_scale,
                               (double)hp->attn_cap,
                               (double)hp->embd_scale,
                               (double)hp->resid_scale,
                               (double)m->fingerprint };
    uint64_t h = XXH3_64bits(numbers, sizeof numbers);

    for (int i = 0; i < ROPE_TABLES; i++) {
        const struct rope_params *r = &hp->rope[i];
        const double rope[] = { (double)r->base,        r->scaling,
                                (double)r->factor,      r->n_ctx_orig,
                                (double)r->attn_factor, (double)r->beta_fast,
                                (double)r->beta_slow,   r->whole_ramp };
        h = XXH3_64bits_withSeed(rope, sizeof rope, h);
    }
    if (hp->rope_kind != m->arch->rope)
        h = XXH3_64bits_withSeed(&hp->rope_kind, sizeof hp->rope_kind, h);
    for (int l = 0; l < hp->n_layer; l++) {
        const struct layer *y = &m->layer[l];
        const int form[] = { y->window, y->rope, y->n_kv, y->hd };
        const int differ = y->n_kv != hp->n_kv || y->hd != hp->hd;
        h = XXH3_64bits_withSeed(form, (differ ? 4 : 2) * sizeof *form, h);
        if (y->moe && y->moe->n_used != hp->moe.n_used)
            h = XXH3_64bits_withSeed(&y->moe->n_used, sizeof y->moe->n_used, h);
    }
    if (cb_model_selects(m)) {
        const double own[] = { m->arch->selects,      hp->selector.n_head, hp->selector.hd,
                               hp->selector.top_k,    hp->selector.block,  hp->selector.local,
                               (double)hp->latent.eps };
        h = XXH3_64bits_withSeed(own, sizeof own, h);
    }
    for (int l = 0; hp->compress.n_group && l < hp->n_layer; l++) {
        const struct compress_params *c = &hp->compress;
        const struct moe *e = m->layer[l].moe;
        const double form[] = { m->layer[l].compressed->ratio,
                                c->top_k,
                                c->n_index,
                                c->n_step,
                                (double)c->stream_eps,
                                e ? (double)e->expert[0].limit : 0,
                                e ? (double)e->shared.limit : 0 };
        h = XXH3_64bits_withSeed(form, sizeof form, h);
    }
    for (int l = 0; l < hp->n_layer; l++)
        h = join_lists(&m->layer[l], h);
    h = join_tensors(m->gguf, &p, h);
    for (int i = 0; i < m->n_adapter; i++) {
        const double scale[] = { (double)m->adapter[i].scale, (double)m->adapter[i].alpha };
        h = XXH3_64bits_withSeed(scale, sizeof scale, h);
        h = join_tensors(m->adapter[i].gguf, &p, h);
    }
    return h ? h : 1;
}

/* The files that make up the model: its own, and the adapters. NULL past the last */
static const struct gguf *file_at(const struct cb_model *m, int i)
{
    if (i > m->n_adapter)
        return NULL;
    return i ? m->adapter[i - 1].gguf : m->gguf;
}

/* The pieces of all tensors -> out; returns their number. out may be NULL */
static size_t cut_all(const struct cb_model *m, struct piece *out)
{
    const struct gguf *g;
    size_t n = 0;

    for (int f = 0; (g = file_at(m, f)); f++)
        for (uint64_t i = 0; i < cb_gguf_n_tensor(g); i++)
            n += cut(cb_gguf_tensor_at(g, i), out ? out + n : NULL);
    return n;
}

int cb_model_weights_hash(struct cb_model *m, uint64_t *out)
{
    struct piece *p;
    size_t n;

    if (!m->weights_hash) {
        n = cut_all(m, NULL);
        if (!(p = cb_calloc(n + 1, sizeof *p)))
            return CB_ENOMEM;
        cut_all(m, p);
        cb_par_for(m->dev->par, (int)n, hash_piece, p);
        m->weights_hash = join(m, p);
        free(p);
    }
    *out = m->weights_hash;
    return CB_OK;
}

int cb_model_fingerprint(cb_model *m, uint64_t *out)
{
    int err;

    if (!m->dev)
        return cb_fail(CB_EARG, "fingerprint: the model was opened for its vocabulary alone");
    TRY(cb_device_lock(m->dev));
    err = cb_model_weights_hash(m, out);
    cb_device_unlock(m->dev);
    return err;
}
