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
    if (!(kv = cb_gguf_find(m->gguf, cb_hp_key(m, "attention.indexer.types", &key))))
        return CB_OK;
    if (kv->type != GGUF_ARRAY || kv->elem == GGUF_STRING || kv->elem == GGUF_ARRAY)
        return cb_fail(CB_EFORMAT, "%s: key %s: is no array of numbers", cb_gguf_path(m->gguf),
                       key);
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

/* Of MSA and QSA: queries and keys of the block's input, both normed */
static int of_input(struct binder *b, int l, struct selector *x)
{
    const struct selector_params *p = &b->m->hp.selector;
    const int ne = b->m->hp.n_embd;

    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "indexer.q_proj.weight"), ne, p->n_head * p->hd,
                       &x->q));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "indexer.k_proj.weight"), ne, p->hd, &x->k));
    x->q_norm = x->k_norm = (struct norm){ .n = p->hd, .n_set = 1 };
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "indexer.q_norm.weight"), REQUIRED, p->hd,
                       &x->q_norm.w));
    return cb_bind_vector(b, cb_bind_in_layer(b, l, "indexer.k_norm.weight"), REQUIRED, p->hd,
                          &x->k_norm.w);
}

/* Which layers have one -> *out: all, those after the leading dense ones, or those whose keys are
 * compressed, by *ratio */
static int has(const struct cb_model *m, int l, const struct layer *y, int *ratio, int *out)
{
    int n_dense = 0;

    *ratio = 0;
    *out = 1;
    if (m->arch->selects == SELECTS_BLOCKS) {
        TRY(cb_hp_int(m, "leading_dense_block_count", OPTIONAL, 0, m->hp.n_block, &n_dense));
        *out = l >= n_dense;
        if (*out && y->n_kv != m->hp.selector.n_head)
            return cb_fail(CB_EFORMAT,
                           "%s: key %s.attention.indexer.head_count: %d index heads for the %d KV "
                           "heads of layer %d",
                           cb_gguf_path(m->gguf), m->arch->name, m->hp.selector.n_head, y->n_kv, l);
    }
    if (m->arch->selects == SELECTS_MEANS) {
        TRY(cb_hp_at(m, "attention.compress_ratios", REQUIRED, 0, m->hp.selector.top_k, l, ratio));
        *out = *ratio > 0;
    }
    return CB_OK;
}

int cb_selector_bind(struct binder *b, int l, struct layer *y)
{
    struct selector *x;
    int own, ratio, any;

    if (!b->m->arch->selects)
        return CB_OK;
    TRY(has(b->m, l, y, &ratio, &any));
    if (!any)
        return CB_OK;
    if (y->window || y->kv_back || y->lends)
        return cb_fail(CB_EUNSUPPORTED, "%s: layer %d has an indexer, and %s: not supported",
                       cb_gguf_path(b->m->gguf), l,
                       y->window ? "a window" : "shares keys and values with another");
    TRY(scores(b->m, l, &own));
    if (!(x = y->selector = cb_calloc(1, sizeof *x)))
        return CB_ENOMEM;
    x->selects = b->m->arch->selects;
    x->ratio = ratio;
    if (x->selects != SELECTS_TOKENS)
        return of_input(b, l, x);
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
