/* SPDX-License-Identifier: MIT */
/* weights.c - binds each tensor to its place and checks its shape. A part of a fused tensor, such
 * as the rows of q in q k v, or one expert, is a matrix of its own. */
#include "weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assistant.h"
#include "base/err.h"
#include "base/words.h"
#include "binder.h"
#include "experts.h"
#include "hparams.h"
#include "layer_input.h"
#include "mtp_head.h"
#include "selector.h"
#include "xielu.h"

/* The norm of q or k: over a head, with one set of weights or one for each head, or over all heads
 * at once. The shape says which. */
static int head_norm(struct binder *b, const char *name, int must, int n_head, int hd,
                     struct norm *out)
{
    const struct gguf_tensor *t;
    char buf[72];

    if (must == OPTIONAL && !cb_bind_find(b, cb_bind_part(&buf, name, "weight")))
        return CB_OK;
    TRY(cb_bind_need(b, cb_bind_part(&buf, name, "weight"), &t));
    if (t->dim[0] == (int64_t)n_head * hd && t->dim[0] != hd)
        *out = (struct norm){ .n = n_head * hd, .n_set = 1 };
    else
        *out = (struct norm){ .n = hd, .n_set = t->dim[1] == n_head ? n_head : 1 };
    TRY(cb_bind_check_shape(b, t, buf, out->n, out->n_set, 1));
    return cb_bind_f32(b, t, (int64_t)out->n * out->n_set, &out->w);
}

/* ---- a layer ---- */

/* Rows of the queries' matrix, which may have gates beside the queries */
static int query_rows(const struct binder *b, const struct layer *y)
{
    return (cb_queries_have_gates(y) ? 2 : 1) * b->m->hp.n_head * y->hd;
}

static int separate_biases(struct binder *b, int l, struct layer *y)
{
    const int nkv = y->n_kv * y->hd;

    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "attn_q.bias"), OPTIONAL, query_rows(b, y),
                       &y->q_bias));
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "attn_k.bias"), OPTIONAL, nkv, &y->k_bias));
    return cb_bind_vector(b, cb_bind_in_layer(b, l, "attn_v.bias"), OPTIONAL, nkv, &y->v_bias);
}

/* A fused matrix may have three biases. */
static int fused_qkv(struct binder *b, int l, struct layer *y)
{
    const int nq = query_rows(b, y), nkv = y->n_kv * y->hd;
    const struct gguf_tensor *t;
    float *bias = NULL;
    int err;

    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, "attn_qkv.weight"), &t));
    TRY(cb_bind_check_shape(b, t, b->name, b->m->hp.n_embd, nq + 2 * nkv, 1));
    cb_bind_take_rows(b, t, b->name, 0, nq, &y->q);
    cb_bind_take_rows(b, t, b->name, nq, nkv, &y->k);
    cb_bind_take_rows(b, t, b->name, nq + nkv, nkv, &y->v);
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "attn_qkv.bias"), OPTIONAL, nq + 2 * nkv, &bias));
    if (!bias)
        return separate_biases(b, l, y);
    err = cb_bind_cut(bias, 0, nq, &y->q_bias);
    err = err ? err : cb_bind_cut(bias, nq, nkv, &y->k_bias);
    err = err ? err : cb_bind_cut(bias, nq + nkv, nkv, &y->v_bias);
    free(bias);
    return err;
}

/* Layers that read another layer's keys and values may have matrices that nobody needs. */
static int queries_alone(struct binder *b, int l, struct layer *y)
{
    const struct hparams *hp = &b->m->hp;
    const int nq = hp->n_head * y->hd;
    static const char *const unused[] = { "attn_k.weight", "attn_v.weight", "attn_k.bias",
                                          "attn_v.bias", "attn_k_norm.weight" };

    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
        const struct gguf_tensor *t;
        if (cb_bind_find(b, cb_bind_in_layer(b, l, unused[i])))
            TRY(cb_bind_need(b, b->name, &t));
    }
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_q.weight"), hp->n_embd, nq, &y->q));
    return cb_bind_vector(b, cb_bind_in_layer(b, l, "attn_q.bias"), OPTIONAL, nq, &y->q_bias);
}

static int separate_qkv(struct binder *b, int l, struct layer *y)
{
    const int nkv = y->n_kv * y->hd, ne = b->m->hp.n_embd;

    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_q.weight"), ne, query_rows(b, y), &y->q));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_k.weight"), ne, nkv, &y->k));
    if (!(b->m->arch->has & VALUES_ARE_KEYS) ||
        cb_bind_find(b, cb_bind_in_layer(b, l, "attn_v.weight")))
        TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_v.weight"), ne, nkv, &y->v));
    return separate_biases(b, l, y);
}

static int attention(struct binder *b, int l, struct layer *y)
{
    const struct hparams *hp = &b->m->hp;
    const int nq = hp->n_head * y->hd, ne = hp->n_embd, has = b->m->arch->has;
    const int must = has & HAS_QK_NORM ? REQUIRED : OPTIONAL, shared = y->kv_back > 0;

    if (l < b->m->hp.n_layer)
        TRY(cb_selector_bind(b, l, y));
    if (hp->latent.rank)
        return cb_latent_bind(b, l, y);
    if (hp->compress.n_group)
        return cb_compressed_bind(b, l, y);
    y->gated = (has & HAS_GATE) != 0;
    if (y->gated && cb_bind_find(b, cb_bind_in_layer(b, l, "attn_gate.weight")))
        TRY(cb_bind_matrix(b, b->name, ne, nq, &y->gate));
    if (shared)
        TRY(queries_alone(b, l, y));
    else
        TRY(cb_bind_find(b, cb_bind_in_layer(b, l, "attn_qkv.weight")) ? fused_qkv(b, l, y)
                                                                       : separate_qkv(b, l, y));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_output.weight"), nq, ne, &y->o));
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "attn_output.bias"), OPTIONAL, ne, &y->o_bias));
    TRY(head_norm(b, cb_bind_in_layer(b, l, "attn_q_norm"), must, hp->n_head, y->hd, &y->q_norm));
    if (!shared)
        TRY(head_norm(b, cb_bind_in_layer(b, l, "attn_k_norm"), must, y->n_kv, y->hd, &y->k_norm));
    return cb_bind_vector(b, cb_bind_in_layer(b, l, "attn_sinks.weight"),
                          has & HAS_SINKS ? REQUIRED : OPTIONAL, hp->n_head, &y->sinks);
}

/* The norms in front of the blocks. Blocks side by side may share one. Falcon 40B has two, and
 * attn_norm_2 is that of the attention. gpt-oss calls the one in front of the feed-forward
 * post_attention_norm. */
static int front_norms(struct binder *b, int l, struct layer *y)
{
    const int ne = b->m->hp.n_embd, both = b->m->arch->norms == NORMS_BOTH;
    const char *of_attn = "attn_norm", *of_ffn = "ffn_norm";

    if (cb_bind_find(b, cb_bind_in_layer(b, l, "attn_norm_2.weight"))) {
        of_attn = "attn_norm_2";
        of_ffn = "attn_norm";
    } else if (!both && cb_bind_find(b, cb_bind_in_layer(b, l, "post_attention_norm.weight"))) {
        of_ffn = "post_attention_norm";
    }
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, of_attn), REQUIRED, ne, &y->attn_norm));
    if (b->m->arch->single)
        return CB_OK;
    if (cb_bind_find(b, cb_bind_in_layer(b, l, of_ffn))) { /* Falcon-H1: without a suffix */
        y->ffn_norm = (struct norm){ .n = ne, .n_set = 1 };
        return cb_bind_vector(b, b->name, REQUIRED, ne, &y->ffn_norm.w);
    }
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, of_ffn), b->m->arch->parallel ? OPTIONAL : REQUIRED,
                     ne, &y->ffn_norm));
    if (b->m->arch->parallel == PARALLEL_IF_SHARED)
        b->m->hp.parallel = !y->ffn_norm.w;
    return y->ffn_norm.w || b->m->hp.parallel ? CB_OK
                                              : cb_fail(CB_EFORMAT, "%s: tensor %s.weight: missing",
                                                        cb_gguf_path(b->m->gguf), b->name);
}

/* Several streams are normed where they are mixed, and n-grams are added before. */
static int streams(struct binder *b, int l, struct layer *y)
{
    int with_ngrams;

    TRY(cb_hp_ngram_layer(b->m, &with_ngrams));
    if (l == with_ngrams)
        TRY(cb_ngrams_bind(b, l, y));
    TRY(cb_stream_mix_bind(b, l, "hc_attn", &y->mix[0]));
    TRY(cb_stream_mix_bind(b, l, "hc_ffn", &y->mix[1]));
    return l < b->m->hp.n_layer - 1 ? CB_OK : cb_stream_mix_bind(b, -1, "output_hc", &y->mix[2]);
}

static int norms(struct binder *b, int l, struct layer *y)
{
    const int ne = b->m->hp.n_embd;

    if (b->m->arch->has & HAS_STREAMS)
        return streams(b, l, y);
    if (b->m->arch->norms != NORMS_BEHIND)
        TRY(front_norms(b, l, y));
    if (b->m->arch->norms == NORMS_BEFORE)
        return CB_OK;
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "post_attention_norm"), REQUIRED, ne,
                     &y->attn_post_norm));
    return cb_bind_norm(b, cb_bind_in_layer(b, l, "post_ffw_norm"), REQUIRED, ne,
                        &y->ffn_post_norm);
}

/* The gate's rows may lie in front of those of up. */
static int fused_gate(struct binder *b, int l, struct ffn *f)
{
    const int ne = b->m->hp.n_embd, nf = b->m->layer[l].n_ff;
    const struct gguf_tensor *t;

    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, "ffn_up.weight"), &t));
    TRY(cb_bind_check_shape(b, t, b->name, ne, 2 * (int64_t)nf, 1));
    cb_bind_take_rows(b, t, b->name, 0, nf, &f->gate);
    cb_bind_take_rows(b, t, b->name, nf, nf, &f->up);
    return CB_OK;
}

static int dense(struct binder *b, int l, struct ffn *f)
{
    const int ne = b->m->hp.n_embd, nf = b->m->layer[l].n_ff;
    const int gated = cb_bind_find(b, cb_bind_in_layer(b, l, "ffn_gate.weight")) != NULL;
    const struct gguf_tensor *up = cb_bind_find(b, cb_bind_in_layer(b, l, "ffn_up.weight"));

    if (!gated && up && up->dim[1] == 2 * (int64_t)nf)
        TRY(fused_gate(b, l, f));
    else {
        if (gated || !cb_arch_ungated(b->m->arch))
            TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ffn_gate.weight"), ne, nf, &f->gate));
        TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ffn_up.weight"), ne, nf, &f->up));
    }
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ffn_down.weight"), nf, ne, &f->down));
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "ffn_gate.bias"), OPTIONAL, nf, &f->gate_bias));
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "ffn_up.bias"), OPTIONAL, nf, &f->up_bias));
    if (b->m->arch->has & HAS_XIELU)
        TRY(cb_xielu_read(b->m, l, &f->xielu));
    return cb_bind_vector(b, cb_bind_in_layer(b, l, "ffn_down.bias"), OPTIONAL, ne, &f->down_bias);
}

/* ---- the whole model ---- */

static int layer_scale(struct binder *b, int l, struct layer *y)
{
    float *scale = NULL;

    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "layer_output_scale.weight"), OPTIONAL, 1,
                       &scale));
    y->scale = scale ? *scale : 1;
    free(scale);
    return CB_OK;
}

/* Experts, a dense network, or one beside the other, which the scale of the router's input shows */
static int networks(struct binder *b, int l, struct layer *y)
{
    if (!b->m->hp.moe.n_expert || !cb_bind_find(b, cb_bind_in_layer(b, l, "ffn_gate_inp.weight")))
        return dense(b, l, &y->ffn);
    TRY(cb_experts_bind(b, l, y));
    if ((b->m->arch->has & HAS_STREAMS) ||
        !cb_bind_find(b, cb_bind_in_layer(b, l, "ffn_gate_inp.scale")))
        return CB_OK;
    TRY(cb_experts_beside(b, l, y->moe));
    return dense(b, l, &y->ffn);
}

/* Layer l, or a block after the last one */
static int layer(struct binder *b, int l)
{
    struct layer *y = &b->m->layer[l];
    const int mixed = l < b->m->hp.n_layer ? cb_hp_is_mixed(b->m, l) : 0;

    if (mixed < 0)
        return mixed;
    TRY(norms(b, l, y));
    if (b->m->hp.norms_rotated)
        TRY(cb_bind_plain_norm(y->hd, &y->rotated_norm));
    if (b->m->hp.norms_values)
        TRY(cb_bind_plain_norm(y->hd, &y->v_norm));
    if (mixed)
        TRY(cb_recurrent_bind(b, l, y));
    if (y->n_kv)
        TRY(attention(b, l, y));
    if (!b->m->arch->single || (!mixed && !y->n_kv))
        TRY(networks(b, l, y));
    TRY(layer_scale(b, l, y));
    if (b->m->hp.compress.n_group)
        TRY(cb_stream_blend_bind(b, l, y));
    if (b->m->hp.altup)
        TRY(cb_altup_bind(b, l, y));
    return b->m->hp.n_input ? cb_layer_input_bind(b, l, y) : CB_OK;
}

static int embeddings(struct binder *b)
{
    struct cb_model *m = b->m;
    struct hparams *hp = &m->hp;
    const struct gguf_tensor *t;

    TRY(cb_bind_need(b, "token_embd.weight", &t));
    if (t->dim[1] < cb_tok_n_vocab(m->tok) || t->dim[1] > 1 << 24)
        return cb_fail(CB_EFORMAT, "%s: tensor token_embd.weight: %lld rows for %d tokens",
                       cb_gguf_path(m->gguf), (long long)t->dim[1], cb_tok_n_vocab(m->tok));
    hp->n_vocab = (int)t->dim[1];
    TRY(cb_bind_matrix(b, "token_embd.weight", hp->n_embd, hp->n_vocab, &m->embd));
    if (hp->n_input)
        TRY(cb_bind_matrix(b, "per_layer_token_embd.weight", hp->n_layer * hp->n_input, hp->n_vocab,
                           &m->inputs));
    if (cb_bind_find(b, "output.weight"))
        TRY(cb_bind_matrix(b, "output.weight", hp->n_embd, hp->n_vocab, &m->output));
    else
        m->output = m->embd;
    TRY(cb_bind_vector(b, "output.bias", OPTIONAL, hp->n_vocab, &m->output_bias));
    if (m->arch->has & HAS_STREAMS) /* the last mix norms */
        return CB_OK;
    return cb_bind_norm(b, m->arch->out_norm ? m->arch->out_norm : "output_norm", REQUIRED,
                        hp->n_embd, &m->out_norm);
}

/* What turns the last state into logits of labels: "yes", and "no" if there are two */
static int classifier(struct binder *b)
{
    const struct gguf_tensor *t = cb_bind_find(b, "cls.output.weight");

    if (!t || b->m->hp.pooling != POOL_RANK)
        return CB_OK;
    return cb_bind_matrix(b, "cls.output.weight", b->m->hp.n_embd, t->dim[1] == 1 ? 1 : 2,
                          &b->m->classifier);
}

/* Llama 3.1 and others store a divisor for each frequency, Phi two. */
static int rope_divisors(struct binder *b)
{
    struct rope_params *r = &b->m->hp.rope[0];
    const int n = r->n_rot / 2;

    if (cb_bind_find(b, "rope_factors_long.weight")) {
        TRY(cb_bind_vector(b, "rope_factors_long.weight", REQUIRED, n, &r->divisor[1]));
        TRY(cb_bind_vector(b, "rope_factors_short.weight", REQUIRED, n, &r->divisor[0]));
    } else {
        TRY(cb_bind_vector(b, "rope_freqs.weight", OPTIONAL, n, &r->divisor[0]));
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; r->divisor[i] && j < n; j++)
            if (!isfinite(1 / r->divisor[i][j]))
                return cb_fail(CB_EFORMAT, "%s: factor %d of the rotation's frequencies is %g",
                               cb_gguf_path(b->m->gguf), j, (double)r->divisor[i][j]);
    return CB_OK;
}

/* Is it of a block after the model's last one, which guesses a later token? */
static int is_later(const struct binder *b, const char *name)
{
    int l, end = 0;

    return sscanf(name, "blk.%d.%n", &l, &end) == 1 && end && l >= b->m->hp.n_layer &&
           l < b->m->hp.n_block;
}

static int begins(const char *name, const char *const *with, int n)
{
    for (int i = 0; i < n; i++)
        if (cb_begins(name, with[i]))
            return 1;
    return 0;
}

/* What the text model can do without: where its bytes are counted, or NULL */
static uint64_t *unused_of(struct binder *b, const char *name)
{
    static const char *const senses[] = { "v.", "a.", "mm.", "resampler." };
    struct unused *x = &b->m->unused;

    if (cb_begins(name, "masked_embd_")) /* which rows of the output are likely ones */
        return &x->tables;
    if (is_later(b, name))
        return &x->later;
    if (strstr(name, ".exp_probs_b_vl.")) /* the choice of experts for parts of images */
        return &x->senses;
    if (begins(name, senses, sizeof senses / sizeof *senses))
        return &x->senses;
    return strstr(name, "rot_embd") || strstr(name, "rope_f") ? &x->tables : NULL;
}

/* A tensor without a place is a part of the model that would be left out, unless the text model can
 * do without it. */
static int check_all_bound(struct binder *b)
{
    const struct gguf *g = b->m->gguf;

    for (uint64_t i = 0; i < cb_gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = cb_gguf_tensor_at(g, i);
        uint64_t *bytes;
        char name[65];

        snprintf(name, sizeof name, "%.*s", (int)(t->name.n < 64 ? t->name.n : 64), t->name.s);
        if (b->bound[i])
            continue;
        if (!(bytes = unused_of(b, name)))
            return cb_fail(CB_EUNSUPPORTED, "%s: tensor %s: family %s has no place for it",
                           cb_gguf_path(g), name, b->m->arch->name);
        *bytes += t->size;
    }
    return CB_OK;
}

static int bind_all(struct binder *b)
{
    struct cb_model *m = b->m;

    TRY(embeddings(b));
    TRY(classifier(b));
    TRY(cb_hparams_layers(m));
    for (int l = 0; l < m->hp.n_layer; l++)
        TRY(layer(b, l));
    TRY(rope_divisors(b));
    TRY(cb_mtp_bind(b, layer));
    TRY(cb_assistant_bind(b));
    return check_all_bound(b);
}

int cb_weights_bind(struct cb_model *m)
{
    struct binder b = { .m = m };
    int err;

    b.bound = cb_calloc((size_t)cb_gguf_n_tensor(m->gguf) + 1, 1);
    err = b.bound ? bind_all(&b) : CB_ENOMEM;
    free(b.bound);
    return err;
}

/* ---- matrices, and the end ---- */

static struct weight *of_ffn(struct ffn *f, int i)
{
    struct weight *const all[] = { &f->gate, &f->up, &f->down };
    return all[i];
}

static struct weight *of_latent(struct latent *x, int i)
{
    if (i < 2)
        return i ? &x->k_rot : &x->q_low;
    i -= 2;
    return i < x->n_head ? &x->absorb[i] : &x->expand[i - x->n_head];
}

static struct weight *of_input(struct layer_input *x, int i)
{
    struct weight *const all[] = { &x->of_embd, &x->gate, &x->out };
    return all[i];
}

/* Matrix *i of what mixes streams and of n-grams; NULL: they have fewer, and *i is less by them */
static struct weight *of_streams(struct layer *y, int *i)
{
    struct weight *w;

    for (int k = 0; k < 3; k++)
        for (int j = 0; y->mix[k] && (w = cb_stream_mix_weight(y->mix[k], j)); j++)
            if (!(*i)--)
                return w;
    if (!y->ngrams)
        return NULL;
    *i -= 2;
    return *i == -2 ? &y->ngrams->key : *i == -1 ? &y->ngrams->value : NULL;
}

/* Matrix *i of attention over compressed rows and of the other kinds of streams; NULL: there are
 * fewer, and *i is less by them */
static struct weight *of_compressed(struct layer *y, int *i)
{
    struct weight *w;

    for (int j = 0; y->compressed && (w = cb_compressed_weight(y->compressed, j)); j++)
        if (!(*i)--)
            return w;
    for (int j = 0; j < 3; j++)
        if (y->blend[j] && !(*i)--)
            return &y->blend[j]->fn;
    for (int j = 0; y->altup && (w = cb_altup_weight(y->altup, j)); j++)
        if (!(*i)--)
            return w;
    return NULL;
}

struct weight *cb_weights_at(struct layer *y, int i, int n_expert)
{
    struct weight *const all[] = { &y->q, &y->k, &y->v, &y->o, &y->gate };
    const int n_latent = y->latent ? 2 + 2 * y->latent->n_head : 0, n_input = y->input ? 3 : 0;
    struct weight *w;

    if (i < 5)
        return all[i];
    i -= 5;
    if ((w = of_streams(y, &i)) || (w = of_compressed(y, &i)))
        return w;
    for (int j = 0; y->mixer && (w = cb_recurrent_weight(y->mixer, j)); j++)
        if (!i--)
            return w;
    for (int j = 0; y->selector && (w = cb_selector_weight(y->selector, j)); j++)
        if (!i--)
            return w;
    if (i < n_input)
        return of_input(y->input, i);
    i -= n_input;
    if (i < 3)
        return of_ffn(&y->ffn, i);
    i -= 3;
    if (i < n_latent)
        return of_latent(y->latent, i);
    i -= n_latent;
    if (!y->moe)
        return NULL;
    if (i < 3)
        return of_ffn(&y->moe->shared, i);
    i -= 3;
    if (i < 4) {
        struct weight *const of_moe[] = { &y->moe->shared_gate, &y->moe->router, &y->moe->latent_in,
                                          &y->moe->latent_out };
        return of_moe[i];
    }
    i -= 4;
    return i < 3 * n_expert ? of_ffn(&y->moe->expert[i / 3], i % 3) : NULL;
}

static void free_layer(struct layer *y, int n_expert)
{
    struct norm *const norms[] = { &y->attn_norm,     &y->ffn_norm,    &y->attn_post_norm,
                                   &y->ffn_post_norm, &y->q_norm,      &y->k_norm,
                                   &y->v_norm,        &y->rotated_norm };
    float *const vectors[] = { y->q_bias, y->k_bias, y->v_bias, y->o_bias, y->sinks };

    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        cb_bind_free_norm(norms[i]);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        free(vectors[i]);
    cb_latent_free(y->latent);
    cb_selector_free(y->selector);
    cb_compressed_free(y->compressed);
    for (int i = 0; i < 3; i++)
        cb_stream_blend_free(y->blend[i]);
    cb_recurrent_free(y->mixer);
    cb_bind_free_ffn(&y->ffn);
    cb_experts_free(y->moe, n_expert);
    cb_layer_input_free(y->input);
    cb_ngrams_free(y->ngrams);
    cb_altup_free(y->altup);
    for (int i = 0; i < 3; i++)
        cb_stream_mix_free(y->mix[i]);
}

void cb_weights_free(struct cb_model *m)
{
    for (int l = 0; m->layer && l <= m->hp.n_layer; l++) /* and the block after the last one */
        free_layer(&m->layer[l], m->hp.moe.n_expert);
    free(m->layer);
    free(m->global);
    free(m->output_bias);
    cb_assistant_free(m->assistant);
    cb_bind_free_norm(&m->out_norm);
    for (int i = 0; i < ROPE_TABLES; i++)
        for (int j = 0; j < 2; j++)
            free(m->hp.rope[i].divisor[j]);
}
