/* SPDX-License-Identifier: MIT */
/* weights_hash.c - tells models apart whose shape and vocabulary are the same. */
#include <stdlib.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/ints.h"
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
    for (int l = 0; l < hp->n_layer; l++) {
        const int form[] = { m->layer[l].window, m->layer[l].rope };
        h = XXH3_64bits_withSeed(form, sizeof form, h);
    }
    for (uint64_t i = 0; i < cb_gguf_n_tensor(m->gguf); i++) {
        const struct gguf_tensor *t = cb_gguf_tensor_at(m->gguf, i);
        const int64_t shape[] = { t->type, t->dim[0], t->dim[1], t->dim[2], t->dim[3] };
        h = XXH3_64bits_withSeed(t->name.s, t->name.n, h);
        h = XXH3_64bits_withSeed(shape, sizeof shape, h);
        for (size_t j = 0, n = cut(t, NULL); j < n; j++, p++)
            h = XXH3_64bits_withSeed(&p->hash, sizeof p->hash, h);
        cb_gguf_release_pages(m->gguf, t->data, t->size);
    }
    return h ? h : 1;
}

int cb_model_weights_hash(struct cb_model *m, uint64_t *out)
{
    const uint64_t n_tensor = cb_gguf_n_tensor(m->gguf);
    struct piece *p;
    size_t n = 0;

    if (!m->weights_hash) {
        for (uint64_t i = 0; i < n_tensor; i++)
            n += cut(cb_gguf_tensor_at(m->gguf, i), NULL);
        if (!(p = cb_calloc(n + 1, sizeof *p)))
            return CB_ENOMEM;
        n = 0;
        for (uint64_t i = 0; i < n_tensor; i++)
            n += cut(cb_gguf_tensor_at(m->gguf, i), p + n);
        cb_par_for(m->dev->par, (int)n, hash_piece, p);
        m->weights_hash = join(m, p);
        free(p);
    }
    *out = m->weights_hash;
    return CB_OK;
}
