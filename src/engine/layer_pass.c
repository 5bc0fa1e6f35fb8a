/* SPDX-License-Identifier: MIT */
/* layer_pass.c - rows go through one layer: attention or a state, then the feed-forward network,
 * each read from the residual stream and added to it. */
#include "layer_pass.h"

#include <math.h>

#include "alternating.h"
#include "attention_block.h"
#include "base/err.h"
#include "ffn.h"
#include "norm_rows.h"
#include "product.h"
#include "stream_blend.h"
#include "streams.h"

/* Do blocks read several streams? Not where one of them goes through the layer. */
static int several(const struct hparams *hp)
{
    return hp->n_stream > 1 && !hp->altup;
}

/* What block i of layer y reads -> *in: w.norm, or the residual stream itself where its norm, w,
 * stands after it. Several streams are mixed. */
static int block_in(const struct rows *r, const struct norm *w, const struct layer *y, int i,
                    int bits, const float **in)
{
    struct cb_session *s = r->s[0];
    const int ne = s->model->hp.n_embd;

    *in = s->w.norm;
    if (y->mix[i])
        return cb_streams_read(s, y->mix[i], r->x, r->n_tok, bits, s->w.norm);
    *in = r->x;
    if (y->blend[i])
        TRY(cb_stream_blend_read(s, y->blend[i], r->x, r->n_tok, bits, in));
    if (w->w) {
        cb_norm_rows(s, w, *in, 1, r->n_tok, ne, s->w.norm, ne);
        *in = s->w.norm;
    }
    return CB_OK;
}

/* Adds what a block computed, w.add[n_tok][n_embd], to the residual stream. */
static void block_add(const struct rows *r, const struct norm *post)
{
    struct cb_session *s = r->s[0];
    const struct hparams *hp = &s->model->hp;

    if (post->w)
        cb_norm_rows(s, post, s->w.add, 1, r->n_tok, hp->n_embd, s->w.add, hp->n_embd);
    if (hp->compress.n_group)
        cb_stream_blend_add(s, r->x, s->w.add, r->n_tok);
    else if (several(hp))
        cb_streams_add(s, r->x, s->w.add, r->n_tok);
    else
        s->dev->ops->add(s->dev, r->x, s->w.add, hp->resid_scale,
                         (size_t)r->n_tok * (size_t)hp->n_embd);
}

/* The last product of a block: by[n_tok][w->n_in] -> the residual stream */
static void block_out(const struct rows *r, const struct weight *w, const float *bias,
                      const struct norm *post, const float *by)
{
    struct cb_session *s = r->s[0];
    const int direct = !post->w && s->model->hp.resid_scale == 1 && !several(&s->model->hp);
    const struct mm mm = { w,        bias,   direct ? r->x : s->w.add,
                           w->n_out, direct, s->bank.decoding ? s->act_bits : 0 };

    cb_product(s, &mm, 1, by, r->n_tok);
    if (!direct)
        block_add(r, post);
}

/* A dense network and experts, each with norms of its own, on the same stream. in: what the dense
 * one reads */
static int dense_beside_experts(const struct rows *r, const struct layer *y, const float *in,
                                int bits)
{
    struct cb_session *s = r->s[0];
    const struct beside *x = y->moe->beside;
    const int n = r->n_tok, ne = s->model->hp.n_embd;
    struct work *w = &s->w;
    const struct mm down = { &y->ffn.down, y->ffn.down_bias, w->beside, ne, 0, bits };

    cb_ffn_hidden(s, &y->ffn, in, n, bits);
    cb_product(s, &down, 1, w->gate, n);
    cb_norm_rows(s, &x->dense_out, w->beside, 1, n, ne, w->beside, ne);
    cb_norm_rows(s, &x->router_in, r->x, 1, n, ne, w->norm, ne);
    TRY(cb_ffn_route(s, y->moe, w->norm, r->id, n, bits));
    cb_norm_rows(s, &x->expert_in, r->x, 1, n, ne, w->norm, ne);
    TRY(cb_ffn_experts(s, y->moe, w->norm, n, bits, w->add));
    cb_norm_rows(s, &x->expert_out, w->add, 1, n, ne, w->add, ne);
    s->dev->ops->add(s->dev, w->add, w->beside, 1, (size_t)n * (size_t)ne);
    block_add(r, &y->ffn_post_norm);
    return CB_OK;
}

/* What layer l is told of each token: its part of the token's row in m->inputs, and a product of
 * the token's embedding -> w.up[n_tok][n_input]. It is computed by each layer, since that of all
 * layers would be many times the residual stream. */
static void layer_inputs(const struct rows *r, int l, int bits)
{
    struct cb_session *s = r->s[0];
    const struct cb_model *m = s->model;
    const struct layer_input *x = m->layer[l].input;
    const int n = r->n_tok, ne = m->hp.n_embd, ni = m->hp.n_input;
    const size_t all = (size_t)n * (size_t)ni;
    struct work *w = &s->w;
    const struct mm mm = { &x->of_embd, NULL, w->up, ni, 0, bits };

    s->dev->ops->get_rows(s->dev, &m->embd, r->id, n, w->norm);
    s->dev->ops->scale(s->dev, w->norm, m->hp.embd_scale, 0, (size_t)n * (size_t)ne);
    cb_product(s, &mm, 1, w->norm, n);
    s->dev->ops->scale(s->dev, w->up, 1 / sqrtf((float)ne), 0, all);
    cb_norm_rows(s, &x->norm, w->up, 1, n, ni, w->up, ni);
    for (int i = 0; i < n; i++)
        cb_model_input_row(m, r->id[i], l, w->told + (size_t)i * (size_t)ni);
    cb_device_copy(s->dev, w->gate, w->told, all * sizeof *w->told);
    s->dev->ops->add(s->dev, w->up, w->gate, sqrtf((float)ni), all);
    s->dev->ops->scale(s->dev, w->up, sqrtf(0.5f), 0, all);
}

/* by[n_tok][n_embd] says how much of what layer l is told goes to the residual stream, or to all
 * but the first of several. */
static int add_input(const struct rows *r, int l, const float *by, int bits)
{
    struct cb_session *s = r->s[0];
    const struct layer_input *x = s->model->layer[l].input;
    const int n = r->n_tok, ni = s->model->hp.n_input, ne = s->model->hp.n_embd;
    struct work *w = &s->w;
    const struct mm mm = { &x->gate, NULL, w->gate, ni, 0, bits };
    const struct mm out = { &x->out, NULL, w->add, ne, 0, bits };

    layer_inputs(r, l, bits);
    cb_product(s, &mm, 1, by, n);
    s->dev->ops->glu(s->dev, s->model->arch->act, w->gate, w->up, ni, n);
    if (!s->model->hp.altup) {
        block_out(r, &x->out, NULL, &x->post_norm, w->gate);
        return CB_OK;
    }
    cb_product(s, &out, 1, w->gate, n);
    cb_norm_rows(s, &x->post_norm, w->add, 1, n, ne, w->add, ne);
    return cb_alternating_tell(s, r->x, n);
}

/* State of a layer: in[n_tok][n_embd] -> what its last product reads */
static const float *mix_by_state(const struct rows *r, int l, const float *in, int bits)
{
    const struct mix_call call = { .a = r->a,
                                   .n = r->n,
                                   .l = l,
                                   .n_tok = r->n_tok,
                                   .bits = bits,
                                   .in = in,
                                   .low = r->s[0]->w.low };

    return cb_attend_mix(&call);
}

/* The blocks of layer l, which read and add to the residual stream. All rows meet each other; of
 * those that nobody reads afterwards, nothing further is computed. */
static int blocks(const struct rows *all, int l, int bits)
{
    const struct rows read = cb_rows_read(all), *r = &read;
    const size_t unread = (size_t)all->unread;
    struct cb_session *s = r->s[0];
    const struct hparams *hp = &s->model->hp;
    const struct layer *y = &s->model->layer[l];
    struct work *w = &s->w;
    const int n = r->n_tok;
    const float *in, *values = NULL;

    /* attention, or a state that stands for all tokens, or both side by side */
    if (y->ngrams)
        TRY(cb_streams_ngrams(all, l, bits));
    TRY(block_in(all, &y->attn_norm, y, 0, bits, &in));
    if (y->altup)
        cb_alternating_beside(s, y->altup, in, n, bits);
    if (y->mixer)
        values = mix_by_state(all, l, in, bits);
    if (y->mixer && n)
        block_out(r, &y->mixer->out, NULL, &y->attn_post_norm,
                  values + unread * (size_t)y->mixer->out.n_in);
    if (y->n_kv)
        TRY(cb_attention_block(all, l, in, bits));
    if (!n)
        return CB_OK;
    if (cb_attention_guesses(r, l + 1))
        cb_attention_guess(r, l + 1, in);
    in += unread * (size_t)hp->n_embd;
    if (hp->parallel && y->ffn_norm.w) /* before attention adds to what the feed-forward reads */
        TRY(block_in(r, &y->ffn_norm, y, 1, bits, &in));
    if (y->n_kv)
        block_out(r, &y->o, y->o_bias, &y->attn_post_norm,
                  cb_attention_values(all, y, bits) + unread * (size_t)y->o.n_in);
    if (y->altup)
        cb_alternating_join(s, n);

    /* feed-forward */
    if (!y->moe && !y->ffn.down.raw) /* the layer is its mixer, or its attention */
        return CB_OK;
    if (!hp->parallel && !s->model->arch->single)
        TRY(block_in(r, &y->ffn_norm, y, 1, bits, &in));
    if (y->moe && y->moe->beside) {
        TRY(dense_beside_experts(r, y, in, bits));
    } else if (y->moe) {
        TRY(cb_ffn_route(s, y->moe, in, r->id, n, bits));
        TRY(cb_ffn_experts(s, y->moe, in, n, bits, w->add));
        block_add(r, &y->ffn_post_norm);
    } else {
        cb_ffn_hidden(s, &y->ffn, in, n, bits);
        block_out(r, &y->ffn.down, y->ffn.down_bias, &y->ffn_post_norm, w->gate);
    }
    return CB_OK;
}

int cb_layer_pass(const struct rows *r, int l)
{
    struct cb_session *s = r->s[0];
    const struct layer *y = &s->model->layer[l];
    const struct rows read = cb_rows_read(r);
    const int n = read.n_tok, bits = s->bank.decoding ? s->act_bits : 0;
    struct rows active = *r; /* one of several streams goes through the layer */

    if (y->altup) {
        active.x = s->w.streams.plane;
        TRY(cb_alternating_predict(s, y->altup, r->x, n, bits));
    }
    TRY(blocks(&active, l, bits));
    if (y->altup)
        TRY(cb_alternating_correct(s, y->altup, r->x, n, bits));
    if (y->input && n)
        TRY(add_input(&read, l, y->altup ? active.x : read.x, bits));
    if (y->scale != 1 && n)
        s->dev->ops->scale(s->dev, read.x, y->scale, 0, (size_t)n * cb_stream_row(s));
    return CB_OK;
}
