/* SPDX-License-Identifier: MIT */
/* forward.c - the forward pass, from tokens to logits. A prompt goes layer by layer: all its chunks
 * go through one layer before the next one starts, so a policy can compact a layer as soon as it is
 * done, and the peak is one full layer plus the compacted ones. Tokens of several sessions go
 * through the layers together: weights are read once for all, attention is each session's own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "base/err.h"
#include "base/ints.h"
#include "compressed_rows.h"
#include "ffn.h"
#include "latent_rows.h"
#include "layer_ahead.h"
#include "model/head_prune.h"
#include "model/health.h"
#include "model/mtp_head.h"
#include "norm_rows.h"
#include "product.h"
#include "prompt_repeat.h"
#include "rows.h"
#include "selector_rows.h"
#include "session.h"
#include "stream_blend.h"
#include "streams.h"

/* Row i of qkv and out as chunk c of session s */
static struct attention_call call_of(const struct rows *r, int l, int i, const float *qkv,
                                     float *out)
{
    const struct layer *y = &r->s[0]->model->layer[l];
    const int nq = r->s[0]->model->hp.n_head * y->hd, nkv = y->n_kv * y->hd;
    const int stride = nq + 2 * nkv;
    const float *q = qkv + (size_t)i * (size_t)stride;
    struct cb_session *s = cb_rows_session(r, i);
    struct attention_call call = { .a = &s->attention,
                                   .c = { .l = l,
                                          .q = q,
                                          .k = q + nq,
                                          .v = q + nq + nkv,
                                          .stride = stride,
                                          .n = 1,
                                          .pos0 = s->bank.n_seen,
                                          .pos_end = s->bank.n_seen + 1 },
                                   .out = out + (size_t)i * (size_t)nq,
                                   .family = s->snapshot };

    if (r->n == 1 && !r->one_by_one) {
        call.c.n = r->n_tok;
        call.c.pos0 = r->pos0;
        call.c.pos_end = r->pos_end;
        call.c.pos = r->pos;
    }
    if (cb_selector_scores(s, l))
        call.c.index = cb_selector_rows_at(r->s[0], i);
    if (y->compressed && y->compressed->ratio) {
        call.c.made_stride = cb_entry_columns(y->compressed).n;
        call.c.made = r->s[0]->w.made + (size_t)i * (size_t)call.c.made_stride;
    }
    return call;
}

/* Each token attends as if it had been decoded alone: layer l has settled before the next one. */
static int attend_one_by_one(const struct rows *r, int l, const float *qkv, float *out)
{
    struct bank *b = &r->s[0]->bank;
    int err = CB_OK;

    for (int i = 0; !err && i < r->n_tok; i++) {
        struct attention_call call;
        b->n_seen = r->pos0 + i;
        r->s[0]->attention.draft_index = i;
        call = call_of(r, l, i, qkv, out);
        err = cb_attend(&call, 1);
        if (!err)
            err = cb_attend_end(call.a, l);
    }
    b->n_seen = r->pos0;
    r->s[0]->attention.draft_index = 0;
    return err;
}

/* qkv[n_tok][(n_head + 2 n_kv) * hd] -> out[n_tok][n_head * hd], of the layer's n_kv and hd */
static int attend(const struct rows *r, int l, const float *qkv, float *out)
{
    if (r->one_by_one)
        return attend_one_by_one(r, l, qkv, out);
    for (int from = 0; from < r->n; from += ATTENTION_CALLS) {
        struct attention_call call[ATTENTION_CALLS];
        const int n = min_int(r->n - from, ATTENTION_CALLS);
        for (int i = 0; i < n; i++)
            call[i] = call_of(r, l, from + i, qkv, out);
        TRY(cb_attend(call, n));
    }
    return CB_OK;
}

/* What block i of layer y reads -> *in: w.norm, or the residual stream itself where its norm, w,
 * stands behind it. Several streams are mixed. */
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
    else if (hp->n_stream > 1)
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
    const int direct = !post->w && s->model->hp.resid_scale == 1 && s->model->hp.n_stream == 1;
    const struct mm mm = { w,        bias,   direct ? r->x : s->w.add,
                           w->n_out, direct, s->bank.decoding ? s->act_bits : 0 };

    cb_product(s, &mm, 1, by, r->n_tok);
    if (!direct)
        block_add(r, post);
}

/* Scales queries by their positions. */
static void scale_queries_by_position(const struct rows *r, const struct layer *y, float *q,
                                      int stride)
{
    const struct hparams *hp = &r->s[0]->model->hp;
    const struct temperature *t = &hp->temperature;

    for (int i = 0; i < r->n_tok && !(t->unrotated && y->rope >= 0); i++) {
        const int pos = cb_rows_pos(r, i);
        const int turns = (pos + t->offset) / t->length;
        if (turns)
            r->s[0]->dev->ops->scale(r->s[0]->dev, q + (size_t)i * (size_t)stride,
                                     1 + t->scale * logf(1 + (float)turns), 0,
                                     (size_t)(hp->n_head * y->hd));
    }
}

/* Queries or keys x[n_tok][n_head][hd] of a layer as they are stored: normed and rotated */
static void rotate(const struct rows *r, const struct layer *y, float *x, int n_head, int stride,
                   const struct norm *of_heads)
{
    struct cb_session *s = r->s[0];
    const int n = r->n_tok, late = s->model->arch->has & NORMS_ROTATED;

    if (of_heads->w && !late)
        cb_norm_rows(s, of_heads, x, n_head * y->hd / of_heads->n, n, stride, x, stride);
    if (y->rope >= 0) {
        const int n_rot = s->rope[y->rope].n_rot, from = y->compressed ? y->hd - n_rot : 0;
        s->dev->ops->rope(s->dev, s->model->arch->rope, x + from, n, n_head, y->hd, stride, n_rot,
                          r->cs[y->rope]);
    }
    if (of_heads->w && late)
        cb_norm_rows(s, of_heads, x, n_head * y->hd / of_heads->n, n, stride, x, stride);
    if (y->rope >= 0 && y->rotated_norm.w)
        cb_norm_rows(s, &y->rotated_norm, x, n_head, n, stride, x, stride);
}

static void rotate_queries(const struct rows *r, const struct layer *y, float *q, int stride)
{
    const struct hparams *hp = &r->s[0]->model->hp;

    rotate(r, y, q, hp->n_head, stride, &y->q_norm);
    if (hp->temperature.scale > 0)
        scale_queries_by_position(r, y, q, stride);
}

/* The gates of attention's output, [n_tok][n_head * hd]; NULL: the model has none */
static float *gates(const struct cb_session *s, const struct layer *y)
{
    if (!s->w.query_gate)
        return NULL;
    return s->w.query_gate + 2 * (size_t)s->chunk * (size_t)s->model->hp.n_head * (size_t)y->hd;
}

/* in[n_tok][n_embd] -> queries at q, `stride` apart, and their gates; gate NULL: not these */
static void gated_queries(const struct rows *r, const struct layer *y, const float *in, int bits,
                          float *q, int stride, float *gate)
{
    struct cb_session *s = r->s[0];
    const int hd = y->hd, n_head = s->model->hp.n_head, nq = n_head * hd;
    float *both = s->w.query_gate;
    const size_t head = (size_t)hd * sizeof *q, row = (size_t)nq * sizeof *q;
    const struct mm mm = { &y->q, y->q_bias, both, 2 * nq, 0, bits };

    cb_product(s, &mm, 1, in, r->n_tok);
    for (int h = 0; h < n_head; h++) {
        cb_device_copy_rows(s->dev, q + h * hd, (size_t)stride * sizeof *q, both + 2 * h * hd,
                            2 * row, head, r->n_tok);
        if (gate)
            cb_device_copy_rows(s->dev, gate + h * hd, row, both + (2 * h + 1) * hd, 2 * row, head,
                                r->n_tok);
    }
}

/* Does a session choose the slots of layer l by guessed queries? */
static int guesses(const struct rows *r, int l)
{
    for (int i = 0; r->s[0]->bank.decoding && l < r->s[0]->model->hp.n_layer && i < r->n; i++)
        if (cb_attend_wants_guess(r->a[i], l))
            return 1;
    return 0;
}

/* What the layer before l reads goes through l's query matrix. Attention has used up the work space
 * of queries. */
static void guess(const struct rows *r, int l, const float *in)
{
    struct cb_session *s = r->s[0];
    const struct layer *y = &s->model->layer[l];
    const int nq = s->model->hp.n_head * y->hd;
    const struct mm mm = { &y->q, y->q_bias, s->w.qkv, nq, 0, s->act_bits };

    if (cb_queries_have_gates(y))
        gated_queries(r, y, in, s->act_bits, s->w.qkv, nq, NULL);
    else
        cb_product(s, &mm, 1, in, r->n_tok);
    rotate_queries(r, y, s->w.qkv, nq);
    for (int i = 0; i < r->n_tok; i++) {
        struct attention *a = r->a[r->n > 1 ? i : 0];
        if (cb_attend_wants_guess(a, l))
            cb_attend_guess(a, l, r->n > 1 ? 0 : i, s->w.qkv + (size_t)i * (size_t)nq);
    }
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

static void add_input(const struct rows *r, int l, int bits)
{
    struct cb_session *s = r->s[0];
    const struct layer_input *x = s->model->layer[l].input;
    const int n = r->n_tok, ni = s->model->hp.n_input;
    struct work *w = &s->w;
    const struct mm mm = { &x->gate, NULL, w->gate, ni, 0, bits };

    layer_inputs(r, l, bits);
    cb_product(s, &mm, 1, r->x, n);
    s->dev->ops->glu(s->dev, s->model->arch->act, w->gate, w->up, ni, n);
    block_out(r, &x->out, NULL, &x->post_norm, w->gate);
}

/* att[n_tok][n_head * hd], weighed by its gates */
static const float *gated(const struct rows *r, const struct layer *y, const float *att)
{
    struct cb_session *s = r->s[0];
    const int nq = s->model->hp.n_head * y->hd;
    float *gate = gates(s, y);

    if (!y->gated)
        return att;
    s->dev->ops->glu(s->dev, ACT_SIGMOID, gate, att, nq, r->n_tok);
    return gate;
}

/* What the selector of layer l needs of the rows */
static enum index_part index_part(const struct rows *r, int l)
{
    const struct cb_model *m = r->s[0]->model;
    const struct selector *x = m->layer[l].selector;
    const int most = x && x->selects == SELECTS_TOKENS ? m->hp.selector.top_k : 0;
    enum index_part part = INDEX_NOTHING;

    for (int i = 0; i < r->n; i++) {
        const int end = r->n > 1 ? r->s[i]->bank.n_seen + 1 : r->pos0 + r->n_tok;
        if (cb_selector_scores(r->s[i], l))
            part = end > most || part == INDEX_ALL ? INDEX_ALL : INDEX_KEYS;
    }
    return part;
}

/* Queries and keys of the index heads; the key lies behind the last head. */
static void rotate_index(const struct rows *r, const struct layer *y, enum index_part part)
{
    struct cb_session *s = r->s[0];
    const struct selector_params *p = &s->model->hp.selector;
    const int first = part == INDEX_ALL ? 0 : p->n_head;
    const int keys = y->selector->selects != SELECTS_MEANS; /* which are rotated as blocks */

    if (y->rope >= 0)
        s->dev->ops->rope(s->dev, s->model->arch->selector_rope, s->w.index + first * p->hd,
                          r->n_tok, p->n_head + keys - first, p->hd,
                          (int)cb_selector_row(&s->model->hp), s->rope[y->rope].n_rot,
                          r->cs[y->rope]);
}

/* Attention of a layer: in[n_tok][n_embd] -> w.att */
static int mix_by_attention(const struct rows *r, int l, const float *in, int bits)
{
    struct cb_session *s = r->s[0];
    const struct hparams *hp = &s->model->hp;
    const struct layer *y = &s->model->layer[l];
    struct work *w = &s->w;
    const int n = r->n_tok, nq = hp->n_head * y->hd, nkv = y->n_kv * y->hd;
    const int stride = nq + 2 * nkv, first = cb_queries_have_gates(y);
    const enum index_part index = index_part(r, l);
    float *q = w->qkv, *k = w->qkv + nq, *v = w->qkv + nq + nkv; /* columns of one row */
    const struct mm mm[] = { { &y->q, y->q_bias, q, stride, 0, bits },
                             { &y->k, y->k_bias, k, stride, 0, bits },
                             { &y->v, y->v_bias, v, stride, 0, bits } };
    const struct mm of_gate = { &y->gate, NULL, gates(s, y), nq, 0, bits };

    if (first)
        gated_queries(r, y, in, bits, q, stride, gates(s, y));
    else if (y->gated)
        cb_product(s, &of_gate, 1, in, n);
    if (y->latent)
        cb_latent_rows(s, y, in, n, bits, index);
    else if (index)
        cb_selector_rows(s, y, in, n, bits, index);
    if (y->compressed)
        TRY(cb_compressed_rows(s, y, in, r->cs[y->rope], n, bits));
    else if (!y->latent)
        cb_product(s, mm + first, y->kv_back ? 1 : y->v.raw ? 3 - first : 2 - first, in, n);
    rotate_queries(r, y, q, stride);
    if (index)
        rotate_index(r, y, index);
    if (!y->kv_back) {
        if (!hp->one_row && !y->v.raw) /* values are keys before their norm and rotation */
            cb_device_copy_rows(s->dev, v, (size_t)stride * sizeof *v, k,
                                (size_t)stride * sizeof *k, (size_t)nkv * sizeof *v, n);
        if (y->v_norm.w)
            cb_norm_rows(s, &y->v_norm, v, y->n_kv, n, stride, v, stride);
        rotate(r, y, k, y->n_kv, stride, &y->k_norm);
    }
    return attend(r, l, w->qkv, w->att);
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

/* What the output's matrix of layer y reads of what its heads have read */
static const float *values(const struct rows *r, const struct layer *y, int bits)
{
    struct cb_session *s = r->s[0];

    if (y->latent)
        return cb_latent_values(s, y->latent, r->n_tok, bits);
    return y->compressed ? cb_compressed_values(s, y, r->cs[y->rope], r->n_tok, bits)
                         : gated(r, y, s->w.att);
}

static int layer(const struct rows *r, int l)
{
    struct cb_session *s = r->s[0];
    const struct hparams *hp = &s->model->hp;
    const struct layer *y = &s->model->layer[l];
    struct work *w = &s->w;
    const int n = r->n_tok, bits = s->bank.decoding ? s->act_bits : 0;
    const float *in;

    /* attention, or a state that stands for all tokens, or both side by side */
    if (y->ngrams)
        TRY(cb_streams_ngrams(r, l, bits));
    TRY(block_in(r, &y->attn_norm, y, 0, bits, &in));
    if (y->mixer)
        block_out(r, &y->mixer->out, NULL, &y->attn_post_norm, mix_by_state(r, l, in, bits));
    if (y->n_kv)
        TRY(mix_by_attention(r, l, in, bits));
    if (guesses(r, l + 1))
        guess(r, l + 1, in);
    if (hp->parallel && y->ffn_norm.w) /* before attention adds to what the feed-forward reads */
        TRY(block_in(r, &y->ffn_norm, y, 1, bits, &in));
    if (y->n_kv)
        block_out(r, &y->o, y->o_bias, &y->attn_post_norm, values(r, y, bits));

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
    if (y->input)
        add_input(r, l, bits);
    if (y->scale != 1)
        s->dev->ops->scale(s->dev, r->x, y->scale, 0, (size_t)n * cb_stream_row(s));
    return CB_OK;
}

/* Token ids -> w.x[n][n_embd], or as many copies of each embedding as there are streams */
static void embed(struct cb_session *s, const int32_t *tokens, int n)
{
    const size_t ne = (size_t)s->model->hp.n_embd, row = cb_stream_row(s);
    const float a = s->model->hp.embd_scale;
    const int n_stream = s->model->hp.n_stream;
    const int step = s->w.part || n_stream > 1 ? s->chunk : n; /* at once */

    for (int i = 0; i < n; i += step) {
        const int m = min_int(step, n - i);
        float *x = s->w.x + (size_t)i * row, *to = n_stream > 1 ? s->w.norm : x;
        s->dev->ops->get_rows(s->dev, &s->model->embd, tokens + i, m, to);
        if (a != 1)
            s->dev->ops->scale(s->dev, to, a, 0, (size_t)m * ne);
        for (int j = 0; n_stream > 1 && j < n_stream; j++)
            cb_device_copy_rows(s->dev, x + (size_t)j * ne, row * sizeof *x, to, ne * sizeof *x,
                                ne * sizeof *x, m);
    }
}

/* A head for later tokens: what its layer reads of tokens[n] and the states before them, at most a
 * chunk -> w.x[n][n_embd] */
static void join(struct cb_session *s, const int32_t *tokens, int n)
{
    const struct cb_model *m = s->model;
    const struct mtp_head *h = m->mtp_of->mtp;
    const int ne = m->hp.n_embd;
    const struct mm mm = { &h->join, NULL, s->w.x, ne, 0, s->bank.decoding ? s->act_bits : 0 };

    s->dev->ops->get_rows(s->dev, &m->embd, tokens, n, s->w.norm);
    if (m->hp.embd_scale != 1)
        s->dev->ops->scale(s->dev, s->w.norm, m->hp.embd_scale, 0, (size_t)n * (size_t)ne);
    cb_norm_rows(s, &h->of_embd, s->w.norm, 1, n, ne, s->w.join, 2 * ne);
    cb_norm_rows(s, s->mtp_in.norm, s->mtp_in.state, 1, n, ne, s->w.norm, ne);
    cb_norm_rows(s, &h->of_state, s->w.norm, 1, n, ne, s->w.join + ne, 2 * ne);
    cb_product(s, &mm, 1, s->w.join, n);
}

/* 1: between layers the rows of a feed of n tokens lie with the host; `part` has one step's. A feed
 * that `part` holds stays there from the first layer to the last. */
static int lie_with_host(const struct cb_session *s, int n)
{
    return s->w.part && n > s->chunk;
}

/* Rows i.. of a feed of n tokens in the device's memory */
static float *rows_at(const struct cb_session *s, int i, int n)
{
    float *x = s->w.part ? s->w.part : s->w.x;

    return lie_with_host(s, n) ? x : x + (size_t)i * cb_stream_row(s);
}

/* Copies m of them from (in) or to the host's memory, where layer l calls for it. */
static void carry_rows(struct cb_session *s, int in, int l, int i, int m, int n)
{
    const size_t row = cb_stream_row(s);
    float *host = s->w.x + (size_t)i * row, *on = rows_at(s, i, n);

    if (s->w.part && (lie_with_host(s, n) || l == (in ? 0 : s->model->hp.n_layer - 1)))
        cb_device_copy(s->dev, in ? on : host, in ? host : on, (size_t)m * row * sizeof *on);
}

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
    cb_norm_rows(s, &m->out_norm, x, 1, n, m->hp.n_embd, s->w.norm, m->hp.n_embd);
    return CB_OK;
}

/* x[n], states after the last layer -> logits[n][n_vocab] */
static int head(struct cb_session *s, const float *x, int n, int bits, float *logits)
{
    const struct cb_model *m = s->model;
    const struct mm mm = { &m->output, m->output_bias, logits, m->hp.n_vocab, 0, bits };

    TRY(last_norm(s, x, n, bits));
    cb_product(s, &mm, 1, s->w.norm, n);
    finish_logits(s, logits, n);
    return CB_OK;
}

/* A weight or a result that is not finite must not become a text. */
static int check(const struct cb_session *s, const float *x, size_t n)
{
    return cb_all_finite(x, n) ? CB_OK : cb_model_not_finite(s->model);
}

/* x of a generated token -> its largest logits, by output-head pruning */
static int head_top(struct cb_session *s, const float *x, float *logits)
{
    const struct cb_model *m = s->model;

    TRY(last_norm(s, x, 1, s->act_bits));
    cb_head_prune_top(s->dev, m->head_prune, &s->prune_stats, s->top, s->act_bits, s->w.norm,
                      logits);
    finish_logits(s, logits, 1);
    return CB_OK;
}

/* cos and sin of n positions from pos0 on, for rows row.. of the work space of s */
static void rotations(struct cb_session *s, const struct rope *rope, int row, int pos0, int n)
{
    for (int i = 0; i < ROPE_TABLES; i++)
        if (rope[i].inv_freq)
            cb_rope_table(&rope[i], pos0, n, s->w.cs[i] + (size_t)row * (size_t)rope[i].n_rot);
}

/* ---- a feed of one session, a step at a time ---- */

/* Asks the caller whether to go on. */
static int report(const struct cb_prefill *how, int64_t done, int64_t total)
{
    if (how && how->progress && how->progress(how->progress_arg, done, total))
        return cb_fail(CB_ECANCEL, "prefill: stopped");
    return CB_OK;
}

/* Hands the logits of tokens logits_from..n-1 to the caller, a batch at a time. */
static int all_logits(struct cb_session *s, int n, const struct cb_prefill *how)
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
        rc = head(s, s->w.x + (size_t)(i - out) * cb_stream_row(s), m, 0, buf);
        rc = rc ? rc : check(s, buf, (size_t)m * (size_t)n_vocab);
        for (int j = 0; j < m && !rc; j++)
            how->logits(how->logits_arg, i + j, buf + (size_t)j * (size_t)n_vocab);
    }
    free(buf);
    return rc;
}

/* Hands the states of all tokens to the caller, a batch at a time. */
static int all_states(struct cb_session *s, int n, const struct cb_prefill *how)
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
        rc = rc ? rc : check(s, buf, (size_t)m * (size_t)ne);
        for (int j = 0; j < m && !rc; j++)
            how->states(how->states_arg, i + j, buf + (size_t)j * (size_t)ne);
    }
    free(buf);
    return rc;
}

/* Rows row[n] (ascending) of the residual stream become rows 0.. */
static void gather(struct cb_session *s, const int *row, int n)
{
    const size_t ne = cb_stream_row(s);
    float *by = s->model->hp.n_stream > 1 ? s->w.streams.normed : s->w.norm;
    float *x = lie_with_host(s, s->bank.n_feed) ? s->w.x : rows_at(s, 0, s->bank.n_feed);

    for (int i = 0, m; i < n; i += m) {
        m = min_int(s->chunk, n - i);
        for (int j = 0, run; j < m; j += run) {
            for (run = 1; j + run < m && row[i + j + run] == row[i + j] + run;)
                run++;
            cb_device_copy(s->dev, by + (size_t)j * ne, x + (size_t)row[i + j] * ne,
                           (size_t)run * ne * sizeof *s->w.x);
        }
        cb_device_copy(s->dev, x + (size_t)i * ne, by, (size_t)m * ne * sizeof *s->w.x);
    }
}

/* Tokens row[m] of a prompt take the first rows: the next layers compute them alone. */
static void take_rows(struct cb_session *s, const int *row, int m)
{
    const int n = s->next.n_tok;

    gather(s, row, m);
    for (int i = 0; i < m; i++) {
        if (s->w.id)
            s->w.id[i] = s->w.id[row[i]];
        s->w.pos[i] = n < s->bank.n_feed ? s->w.pos[row[i]] : s->bank.n_seen + row[i];
        for (int t = 0; t < ROPE_TABLES; t++) {
            const size_t rot = (size_t)s->rope[t].n_rot;
            if (s->w.cs[t])
                memmove(s->w.cs[t] + (size_t)i * rot, s->w.cs[t] + (size_t)row[i] * rot,
                        rot * sizeof(float));
        }
    }
    s->next.n_tok = m;
}

/* Before the first layer: which tokens of a prompt this rank computes */
static void deal_out(struct cb_session *s)
{
    const int *row;
    const int n = s->next.n_tok, m = cb_context_split_begin(&s->attention, n, &row);

    if (m < n)
        take_rows(s, row, m);
}

void cb_forward_begin(struct cb_session *s, const int32_t *tokens, int n)
{
    if (s->model->mtp_of)
        join(s, tokens, n);
    else
        embed(s, tokens, n);
    if (s->w.id)
        memcpy(s->w.id, tokens, (size_t)n * sizeof *tokens);
    rotations(s, s->rope, 0, s->bank.n_seen, n);
    s->bank.read_bytes = 0;
    s->bank.n_feed = n;
    s->next = (struct step){ 0, 0, n };
    cb_attention_begin(&s->attention);
    if (!s->attention.repeated.to) {
        /* a later prompt finds slots that an earlier one has left */
        s->attention.repeats = s->repeat && !s->bank.n_seen && !s->bank.decoding;
        s->fed = 0;
        s->to_feed = n + (s->attention.repeats ? cb_prompt_repeat_total(s->repeat, n) : 0);
    }
    if (!s->bank.decoding)
        deal_out(s);
}

/* All layers have taken the next n tokens. */
static void fed(struct cb_session *s, int n)
{
    memset(s->decoded + s->bank.n_seen, s->bank.decoding, (size_t)n);
    s->bank.n_seen += n;
    s->bank.n_feed = 0;
    cb_attention_fed(&s->attention, n);
}

/* After the last layer: the last token's logits. */
static int finish(struct cb_session *s, const struct cb_prefill *how)
{
    const int n = s->bank.n_feed;
    float *last = s->w.x + (size_t)(s->next.n_tok - 1) * cb_stream_row(s);

    if (s->model->mtp_of) { /* the drafter looks at its state */
        TRY(cb_device_wait(s->dev));
        fed(s, n);
        return CB_OK;
    }
    if (!s->bank.decoding)
        TRY(cb_context_split_last(&s->attention, last, (int)cb_stream_row(s)));
    if (how && how->logits)
        TRY(all_logits(s, n, how));
    if (how && how->states)
        TRY(all_states(s, n, how));
    else if (s->bank.decoding && s->top && s->model->head_prune)
        TRY(head_top(s, last, s->w.logits));
    else
        TRY(head(s, last, 1, s->bank.decoding ? s->act_bits : 16, s->w.logits));
    TRY(cb_device_wait(s->dev));
    if (!(how && how->states) && !cb_none_absurd(s->w.logits, (size_t)s->model->hp.n_vocab))
        return cb_model_not_finite(s->model);
    cb_session_passed(s, s->next.n_tok == n ? s->w.x : NULL, s->bank.n_seen, n);
    fed(s, n);
    return CB_OK;
}

/* The prompt, or the repetition of a piece of it, which is taken back, has gone through all layers.
 * Begins the feed that repeats the next piece and returns 1, or 0 when there is none. */
static int repeat_prompt(struct cb_session *s)
{
    struct piece *p = &s->attention.repeated;
    const int done = p->to;
    const int32_t *token;
    int n;

    if (!s->attention.repeats)
        return 0;
    if (done) {
        TRY(cb_device_wait(s->dev));
        cb_bank_cut(&s->bank, s->bank.n_seen);
    }
    n = cb_prompt_repeat_feed(s->repeat, s->token, s->bank.n_seen, done, &p->from, &p->to, &token);
    if (n) {
        cb_forward_begin(s, token, n);
        return 1;
    }
    *p = (struct piece){ 0 };
    return cb_attend_repeated(&s->attention);
}

/* After layer l: which tokens of a prompt later layers compute */
static int narrow(struct cb_session *s, int l)
{
    const int *row;
    const int n = s->next.n_tok, m = cb_attend_narrow(&s->attention, l, n, &row);

    TRY(m);
    if (m < n)
        take_rows(s, row, m);
    return CB_OK;
}

int cb_forward_step(struct cb_session *s, const struct cb_prefill *how)
{
    const struct hparams *hp = &s->model->hp;
    const int n = s->next.n_tok, pos0 = s->bank.n_seen, l = s->next.layer, i = s->next.token;
    const int n_feed = s->bank.n_feed, room = cb_attention_max_step(&s->attention, l, i);
    const int m = min_int(min_int(s->chunk, n - i), room);
    struct rows r = { &s,
                      &(struct attention *){ &s->attention },
                      1,
                      m,
                      0,
                      pos0 + i,
                      pos0 + n,
                      n < n_feed ? s->w.pos + i : NULL,
                      s->w.id ? s->w.id + i : NULL,
                      rows_at(s, i, n_feed),
                      { 0 } };

    for (int t = 0; t < ROPE_TABLES; t++)
        r.cs[t] = s->w.cs[t] ? s->w.cs[t] + (size_t)i * (size_t)s->rope[t].n_rot : NULL;
    if (!i)
        cb_layer_ahead(s, l, m);
    carry_rows(s, 1, l, i, m, n_feed);
    TRY(layer(&r, l));
    cb_attend_passed(&s->attention, l, pos0 + i + m);
    carry_rows(s, 0, l, i, m, n_feed);
    TRY(report(how, s->fed + (l * (int64_t)n_feed + (int64_t)(i + m) * n_feed / n) / hp->n_layer,
               s->to_feed));
    s->next.token += m;
    if (s->next.token < n)
        return 1;
    TRY(cb_attend_end(&s->attention, l));
    s->next = (struct step){ l + 1, 0, n };
    if (!s->bank.decoding && !s->attention.repeated.to)
        TRY(narrow(s, l));
    if (l + 1 < hp->n_layer)
        return 1;
    s->fed += n_feed;
    cb_layer_ahead_end(s);
    if (!s->attention.repeated.to)
        TRY(finish(s, how));
    return repeat_prompt(s);
}

int cb_forward(struct cb_session *s, const int32_t *tokens, int n, const struct cb_prefill *how)
{
    int left;

    cb_forward_begin(s, tokens, n);
    do
        left = cb_forward_step(s, how);
    while (left > 0);
    return left;
}

/* ---- one token of each of several sessions ---- */

int cb_forward_batch(struct cb_session *const *s, const int32_t *tokens, int n)
{
    const struct hparams *hp = &s[0]->model->hp;
    struct work *w = &s[0]->w;
    const size_t n_vocab = (size_t)hp->n_vocab;
    const int pos0 = s[0]->bank.n_seen; /* of a batch of one */
    const struct rows r = { s,
                            w->batch,
                            n,
                            n,
                            0,
                            pos0,
                            pos0 + 1,
                            NULL,
                            tokens,
                            rows_at(s[0], 0, n),
                            { w->cs[0], w->cs[1] } };

    embed(s[0], tokens, n);
    carry_rows(s[0], 1, 0, 0, n, n);
    for (int i = 0; i < n; i++) {
        w->batch[i] = &s[i]->attention;
        rotations(s[0], s[i]->rope, i, s[i]->bank.n_seen, 1);
        s[i]->bank.read_bytes = 0;
        s[i]->bank.n_feed = 1;
    }
    for (int l = 0; l < hp->n_layer; l++) {
        TRY(layer(&r, l));
        for (int i = 0; i < n; i++)
            TRY(cb_attend_end(&s[i]->attention, l));
    }
    TRY(head(s[0], r.x, n, s[0]->act_bits, w->batch_logits));
    TRY(cb_device_wait(s[0]->dev));
    TRY(check(s[0], w->batch_logits, (size_t)n * n_vocab));
    for (int i = 0; i < n; i++) {
        memcpy(s[i]->w.logits, w->batch_logits + (size_t)i * n_vocab, n_vocab * sizeof *w->logits);
        cb_session_passed(s[i], r.x + (size_t)i * (size_t)hp->n_embd, s[i]->bank.n_seen, 1);
        fed(s[i], 1);
    }
    return CB_OK;
}

/* ---- several tokens of one session, as if each were decoded alone ---- */

int cb_forward_one_by_one(struct cb_session *s, const int32_t *tokens, int n)
{
    const struct hparams *hp = &s->model->hp;
    struct work *w = &s->w;
    const size_t n_vocab = (size_t)hp->n_vocab;
    const int pos0 = s->bank.n_seen;
    const struct rows r = { &s,
                            &(struct attention *){ &s->attention },
                            1,
                            n,
                            1,
                            pos0,
                            pos0 + n,
                            NULL,
                            tokens,
                            rows_at(s, 0, n),
                            { w->cs[0], w->cs[1] } };

    cb_forward_begin(s, tokens, n);
    carry_rows(s, 1, 0, 0, n, n);
    s->bank.n_feed = 1; /* each token is a feed of its own */
    for (int l = 0; l < hp->n_layer; l++)
        TRY(layer(&r, l));
    TRY(head(s, r.x, n, s->act_bits, w->batch_logits));
    TRY(cb_device_wait(s->dev));
    TRY(check(s, w->batch_logits, (size_t)n * n_vocab));
    memcpy(w->logits, w->batch_logits + (size_t)(n - 1) * n_vocab, n_vocab * sizeof *w->logits);
    s->bank.read_bytes /= (uint64_t)n; /* a token's */
    cb_session_passed(s, r.x, pos0, n);
    fed(s, n);
    return CB_OK;
}
