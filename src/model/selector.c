/* SPDX-License-Identifier: MIT */
/* selector.c - the matrices with which a layer scores the stored tokens that it may read. */
#include "selector.h"

#include <stdlib.h>

#include "base/err.h"
#include "hparams.h"

/* Does layer l score for itself? Metadata may say so of each layer. */
static int scores(const struct cb_model *m, int l, int *out)
{
    const struct gguf_kv *kv;
    char key[128];

    *out = 1;
    if (!cb_gguf_find(m->gguf, cb_hp_key(m, "attention.indexer.types", &key)))
        return CB_OK;
    TRY(cb_gguf_array(m->gguf, key, GGUF_BOOL, &kv));
    if (kv->n != (uint64_t)m->hp.n_layer && kv->n != (uint64_t)m->hp.n_block)
        return cb_fail(CB_EFORMAT, "%s: key %s: %llu values for %d layers", cb_gguf_path(m->gguf),
                       key, (unsigned long long)kv->n, m->hp.n_layer);
    *out = cb_gguf_array_num(kv, (uint64_t)l) > 0;
    if (!*out && !l)
        return cb_fail(CB_EFORMAT, "%s: key %s: layer 0 has no layer before it that chooses",
                       cb_gguf_path(m->gguf), key);
    return CB_OK;
}

/* Of DSA: queries of the queries' own projection, which latent attention has */
static int tokens(struct binder *b, int l, struct selector *x)
{
    const struct hparams *hp = &b->m->hp;
    const struct selector_params *p = &hp->selector;
    const int nq = p->n_head * p->hd;

    if (!hp->latent.low)
        return cb_fail(CB_EUNSUPPORTED,
                       "%s: key %s.attention.q_lora_rank: missing, and the indexer reads it",
                       cb_gguf_path(b->m->gguf), b->m->arch->name);
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "indexer.attn_q_b.weight"), hp->latent.low, nq,
                       &x->q));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "indexer.attn_k.weight"), hp->n_embd, p->hd,
                       &x->k));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "indexer.proj.weight"), hp->n_embd, p->n_head,
                       &x->weigh));
    x->k_norm = (struct norm){ .n = p->hd, .n_set = 1 };
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "indexer.k_norm.weight"), REQUIRED, p->hd,
                       &x->k_norm.w));
    return cb_bind_vector(b, cb_bind_in_layer(b, l, "indexer.k_norm.bias"), REQUIRED, p->hd,
                          &x->k_norm.b);
}

int cb_selector_bind(struct binder *b, int l, struct layer *y)
{
    struct selector *x;
    int own;

    if (!b->m->arch->selects)
        return CB_OK;
    TRY(scores(b->m, l, &own));
    if (!(x = y->selector = cb_calloc(1, sizeof *x)))
        return CB_ENOMEM;
    x->selects = b->m->arch->selects;
    if (own)
        return tokens(b, l, x);
    x->back = 1 + b->m->layer[l - 1].selector->back;
    return CB_OK;
}

struct weight *cb_selector_weight(struct selector *x, int i)
{
    struct weight *const all[] = { &x->q, &x->k, &x->weigh };

    return i < (int)(sizeof all / sizeof *all) ? all[i] : NULL;
}

void cb_selector_free(struct selector *x)
{
    if (!x)
        return;
    cb_bind_free_norm(&x->q_norm);
    cb_bind_free_norm(&x->k_norm);
    free(x);
}
