/* SPDX-License-Identifier: MIT */
/* attention_block.c - attention of one layer of the forward pass: products, norms and rotations
 * make queries, keys and values of rows; attention reads them. */
#include "attention_block.h"

#include <math.h>

#include "base/err.h"
#include "base/ints.h"
#include "compressed_rows.h"
#include "expanded_latents.h"
#include "latent_rows.h"
#include "norm_rows.h"
#include "product.h"
#include "selector_rows.h"

/* 1: no session's layer l wants what its selector makes of the rows in the host's memory */
static int index_stays(const struct rows *r, int l)
{
    for (int i = 0; i < r->n; i++)
        if (!cb_attend_takes_index(&r->s[i]->attention, l))
            return 0;
    return 1;
}

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
        call.c.index = cb_selector_rows_at(r->s[0], i, index_stays(r, l));
    if (y->compressed && y->compressed->ratio) {
        call.c.made_stride = cb_entry_columns(y->compressed).n;
        call.c.made = cb_compressed_made(r->s[0]) + (size_t)i * (size_t)call.c.made_stride;
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

/* Norms of x[n_tok][n_head + n_kv][hd], queries before keys. Either may be none. */
static void norm_heads(const struct rows *r, const struct layer *y, float *x, int n_head, int n_kv,
                       int hd, int stride)
{
    float *k = x + n_head * hd;

    if (n_head && y->q_norm.w)
        cb_norm_rows(r->s[0], &y->q_norm, x, n_head * hd / y->q_norm.n, r->n_tok, stride, x,
                     stride);
    if (n_kv && y->k_norm.w)
        cb_norm_rows(r->s[0], &y->k_norm, k, n_kv * hd / y->k_norm.n, r->n_tok, stride, k, stride);
}

/* The same rows as they are multiplied and stored: normed and rotated */
static void rotate(const struct rows *r, const struct layer *y, float *x, int n_head, int n_kv,
                   int hd, int stride)
{
    struct cb_session *s = r->s[0];
    const int late = s->model->arch->has & NORMS_ROTATED, n = r->n_tok;

    if (!late)
        norm_heads(r, y, x, n_head, n_kv, hd, stride);
    if (y->rope >= 0) {
        const int n_rot = s->rope[y->rope].n_rot, from = y->compressed ? hd - n_rot : 0;
        s->dev->ops->rope(s->dev, s->model->hp.rope_kind, x + from, n, n_head + n_kv, hd, stride,
                          n_rot, r->cs[y->rope]);
    }
    if (late)
        norm_heads(r, y, x, n_head, n_kv, hd, stride);
    if (y->rope >= 0 && y->rotated_norm.w)
        cb_norm_rows(s, &y->rotated_norm, x, n_head + n_kv, n, stride, x, stride);
    if (n_head && s->model->hp.temperature.scale > 0)
        scale_queries_by_position(r, y, x, stride);
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

int cb_attention_guesses(const struct rows *r, int l)
{
    for (int i = 0; r->s[0]->bank.decoding && l < r->s[0]->model->hp.n_layer && i < r->n; i++)
        if (cb_attend_wants_guess(r->a[i], l))
            return 1;
    return 0;
}

void cb_attention_guess(const struct rows *r, int l, const float *in)
{
    struct cb_session *s = r->s[0];
    const struct layer *y = &s->model->layer[l];
    const int nq = s->model->hp.n_head * y->hd;
    const struct mm mm = { &y->q, y->q_bias, s->w.qkv, nq, 0, s->act_bits };

    if (cb_queries_have_gates(y))
        gated_queries(r, y, in, s->act_bits, s->w.qkv, nq, NULL);
    else
        cb_product(s, &mm, 1, in, r->n_tok);
    rotate(r, y, s->w.qkv, s->model->hp.n_head, 0, y->hd, nq);
    for (int i = 0; i < r->n_tok; i++) {
        struct attention *a = r->a[r->n > 1 ? i : 0];
        if (cb_attend_wants_guess(a, l))
            cb_attend_guess(a, l, r->n > 1 ? 0 : i, s->w.qkv + (size_t)i * (size_t)nq);
    }
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

/* Queries and keys of the index heads, ready to be scored; the key lies after the last head. */
static void rotate_index(const struct rows *r, int l, enum index_part part)
{
    struct cb_session *s = r->s[0];
    const struct layer *y = &s->model->layer[l];
    const struct selector_params *p = &s->model->hp.selector;
    const int first = part == INDEX_ALL ? 0 : p->n_head;
    const int keys = y->selector->selects != SELECTS_MEANS; /* which are rotated as blocks */

    if (y->rope >= 0)
        s->dev->ops->rope(s->dev, s->model->arch->selector_rope, s->w.index + first * p->hd,
                          r->n_tok, p->n_head + keys - first, p->hd,
                          (int)cb_selector_row(&s->model->hp), s->rope[y->rope].n_rot,
                          r->cs[y->rope]);
    if (!index_stays(r, l))
        cb_selector_rows_home(s, r->n_tok);
}

/* Are keys and values all that somebody reads of these rows? */
static int stores_only(const struct rows *r, int l)
{
    const struct layer *y = &r->s[0]->model->layer[l];

    return r->unread && r->unread == r->n_tok && !y->latent && !y->compressed &&
           !cb_selector_scores(r->s[0], l) && cb_attend_reads_all(&r->s[0]->attention, l);
}

int cb_attention_block(const struct rows *r, int l, const float *in, int bits)
{
    struct cb_session *s = r->s[0];
    const struct hparams *hp = &s->model->hp;
    const struct layer *y = &s->model->layer[l];
    struct work *w = &s->w;
    const int n = r->n_tok, nq = hp->n_head * y->hd, nkv = y->n_kv * y->hd;
    const int n_kv = y->kv_back ? 0 : y->n_kv; /* whose keys are made here */
    const int stride = nq + 2 * nkv, first = cb_queries_have_gates(y);
    const enum index_part index = index_part(r, l);
    const int expanded = y->latent ? cb_expanded_begin(r, l) : 0;
    const int rows_only = stores_only(r, l), from = first || rows_only; /* of the products */
    float *q = w->qkv, *k = w->qkv + nq, *v = w->qkv + nq + nkv;        /* columns of one row */
    const struct mm mm[] = { { &y->q, y->q_bias, q, stride, 0, bits },
                             { &y->k, y->k_bias, k, stride, 0, bits },
                             { &y->v, y->v_bias, v, stride, 0, bits } };
    const struct mm of_gate = { &y->gate, NULL, gates(s, y), nq, 0, bits };

    TRY(expanded);
    if (first && !rows_only)
        gated_queries(r, y, in, bits, q, stride, gates(s, y));
    else if (y->gated && !rows_only)
        cb_product(s, &of_gate, 1, in, n);
    if (y->latent)
        cb_latent_rows(s, y, in, n, bits, index, expanded);
    else if (index)
        cb_selector_rows(s, y, in, n, bits, index);
    if (y->compressed)
        TRY(cb_compressed_rows(s, y, in, r->cs[y->rope], n, bits));
    else if (!y->latent)
        cb_product(s, mm + from, y->kv_back ? 1 : y->v.raw ? 3 - from : 2 - from, in, n);
    if (index)
        rotate_index(r, l, index);
    if (!y->kv_back) {
        if (!hp->one_row && !y->v.raw) /* values are keys before their norm and rotation */
            cb_device_copy_rows(s->dev, v, (size_t)stride * sizeof *v, k,
                                (size_t)stride * sizeof *k, (size_t)nkv * sizeof *v, n);
        if (y->v_norm.w)
            cb_norm_rows(s, &y->v_norm, v, y->n_kv, n, stride, v, stride);
    }
    if (expanded)
        rotate(r, y, q, hp->n_head, 0, cb_expanded_hd(hp), stride);
    if (expanded || rows_only)
        rotate(r, y, k, 0, n_kv, y->hd, stride);
    else
        rotate(r, y, q, hp->n_head, n_kv, y->hd, stride);
    if (expanded || rows_only) {
        const struct attention_call call = call_of(r, l, 0, w->qkv, w->att);
        return expanded ? cb_expanded_attend(r, &call, bits) : cb_attend_store(&call);
    }
    return attend(r, l, w->qkv, w->att);
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

const float *cb_attention_values(const struct rows *r, const struct layer *y, int bits)
{
    struct cb_session *s = r->s[0];
    const float *values;

    if (y->latent && (values = cb_expanded_values(s, r->n_tok)))
        return values;
    if (y->latent)
        return cb_latent_values(s, y->latent, r->n_tok, bits);
    return y->compressed ? cb_compressed_values(s, y, r->cs[y->rope], r->n_tok, bits)
                         : gated(r, y, s->w.att);
}
