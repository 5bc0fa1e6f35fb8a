/* SPDX-License-Identifier: MIT */
/* weights.c - binds each tensor to its place and checks its shape. A part of a fused tensor, such
 * as the rows of q in q k v, or one expert, is a matrix of its own. */
#include "weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "hparams.h"

struct binder {
    struct cb_model *m;
    char *bound; /* [n_tensor] */
    char name[64];
};

/* ---- one tensor ---- */

/* NULL: the file has no such tensor */
static const struct gguf_tensor *find(const struct binder *b, const char *name)
{
    return cb_gguf_tensor(b->m->gguf, name);
}

static int need(struct binder *b, const char *name, const struct gguf_tensor **out)
{
    *out = find(b, name);
    if (!*out)
        return cb_fail(CB_EFORMAT, "%s: tensor %s: missing", cb_gguf_path(b->m->gguf), name);
    b->bound[*out - cb_gguf_tensor_at(b->m->gguf, 0)] = 1;
    return CB_OK;
}

static int check_shape(const struct binder *b, const struct gguf_tensor *t, const char *name,
                       int64_t d0, int64_t d1, int64_t d2)
{
    char more[24] = "";

    if (t->dim[0] == d0 && t->dim[1] == d1 && t->dim[2] == d2 && t->dim[3] == 1)
        return CB_OK;
    if (d2 > 1)
        snprintf(more, sizeof more, "x%lld", (long long)d2);
    return cb_fail(CB_EFORMAT, "%s: tensor %s: shape %lldx%lldx%lldx%lld, expected %lldx%lld%s",
                   cb_gguf_path(b->m->gguf), name, (long long)t->dim[0], (long long)t->dim[1],
                   (long long)t->dim[2], (long long)t->dim[3], (long long)d0, (long long)d1, more);
}

/* Rows [row, row + n_out) of all the tensor's rows -> w */
static void take_rows(struct binder *b, const struct gguf_tensor *t, const char *name, int64_t row,
                      int n_out, struct weight *w)
{
    const int n_in = (int)t->dim[0];

    snprintf(w->name, sizeof w->name, "%s", name);
    w->type = t->type;
    w->n_in = n_in;
    w->n_out = n_out;
    w->raw = (const char *)t->data + (size_t)row * cb_row_bytes(t->type, n_in);
    b->m->weights_bytes += (size_t)n_out * cb_row_bytes(t->type, n_in);
    b->m->n_params += (int64_t)n_in * n_out;
}

/* A matrix [n_out][n_in] */
static int matrix(struct binder *b, const char *name, int n_in, int n_out, struct weight *w)
{
    const struct gguf_tensor *t;

    TRY(need(b, name, &t));
    TRY(check_shape(b, t, name, n_in, n_out, 1));
    take_rows(b, t, name, 0, n_out, w);
    return CB_OK;
}

static int to_f32(struct binder *b, const struct gguf_tensor *t, int64_t n, float **out)
{
    *out = cb_calloc((size_t)n, sizeof **out);
    if (!*out)
        return CB_ENOMEM;
    cb_dtype[t->type].to_f32(t->data, *out, n);
    b->m->weights_bytes += t->size;
    b->m->n_params += n;
    return CB_OK;
}

/* A vector as f32; *out stays NULL when it is optional and absent */
static int vector(struct binder *b, const char *name, int must, int n, float **out)
{
    const struct gguf_tensor *t;

    if (must == OPTIONAL && !find(b, name))
        return CB_OK;
    TRY(need(b, name, &t));
    TRY(check_shape(b, t, name, n, 1, 1));
    return to_f32(b, t, n, out);
}

/* A norm's name with ".weight", or with ".bias" */
static const char *part(char (*buf)[72], const char *name, const char *what)
{
    snprintf(*buf, sizeof *buf, "%s.%s", name, what);
    return *buf;
}

static int norm(struct binder *b, const char *name, int must, int n, struct norm *out)
{
    char buf[72];

    *out = (struct norm){ .n = n, .n_set = 1 };
    TRY(vector(b, part(&buf, name, "weight"), must, n, &out->w));
    return vector(b, part(&buf, name, "bias"), OPTIONAL, n, &out->b);
}

/* The norm of q or k: over a head, with one set of weights or one for each head, or over all heads
 * at once. The shape says which. */
static int head_norm(struct binder *b, const char *name, int must, int n_head, struct norm *out)
{
    const int hd = b->m->hp.hd;
    const struct gguf_tensor *t;
    char buf[72];

    if (must == OPTIONAL && !find(b, part(&buf, name, "weight")))
        return CB_OK;
    TRY(need(b, part(&buf, name, "weight"), &t));
    if (t->dim[0] == (int64_t)n_head * hd && t->dim[0] != hd)
        *out = (struct norm){ .n = n_head * hd, .n_set = 1 };
    else
        *out = (struct norm){ .n = hd, .n_set = t->dim[1] == n_head ? n_head : 1 };
    TRY(check_shape(b, t, buf, out->n, out->n_set, 1));
    return to_f32(b, t, (int64_t)out->n * out->n_set, &out->w);
}

/* ---- a layer ---- */

/* blk.L.NAME */
static const char *in_layer(struct binder *b, int l, const char *name)
{
    snprintf(b->name, sizeof b->name, "blk.%d.%s", l, name);
    return b->name;
}

/* Part of a fused bias, rows [from, from + n) of x -> *out */
static int cut(const float *x, int from, int n, float **out)
{
    if (!x)
        return CB_OK;
    *out = cb_calloc((size_t)n, sizeof **out);
    if (!*out)
        return CB_ENOMEM;
    memcpy(*out, x + from, (size_t)n * sizeof **out);
    return CB_OK;
}

static int fused_qkv(struct binder *b, int l, struct layer *y)
{
    const struct hparams *hp = &b->m->hp;
    const int nq = hp->n_head * hp->hd, nkv = hp->n_kv * hp->hd;
    const struct gguf_tensor *t;
    float *bias = NULL;
    int err;

    TRY(need(b, in_layer(b, l, "attn_qkv.weight"), &t));
    TRY(check_shape(b, t, b->name, hp->n_embd, nq + 2 * nkv, 1));
    take_rows(b, t, b->name, 0, nq, &y->q);
    take_rows(b, t, b->name, nq, nkv, &y->k);
    take_rows(b, t, b->name, nq + nkv, nkv, &y->v);
    TRY(vector(b, in_layer(b, l, "attn_qkv.bias"), OPTIONAL, nq + 2 * nkv, &bias));
    err = cut(bias, 0, nq, &y->q_bias);
    err = err ? err : cut(bias, nq, nkv, &y->k_bias);
    err = err ? err : cut(bias, nq + nkv, nkv, &y->v_bias);
    free(bias);
    return err;
}

static int separate_qkv(struct binder *b, int l, struct layer *y)
{
    const struct hparams *hp = &b->m->hp;
    const int nq = hp->n_head * hp->hd, nkv = hp->n_kv * hp->hd, ne = hp->n_embd;
    const int bias = b->m->arch->has & HAS_QKV_BIAS ? REQUIRED : OPTIONAL;

    TRY(matrix(b, in_layer(b, l, "attn_q.weight"), ne, nq, &y->q));
    TRY(matrix(b, in_layer(b, l, "attn_k.weight"), ne, nkv, &y->k));
    TRY(matrix(b, in_layer(b, l, "attn_v.weight"), ne, nkv, &y->v));
    TRY(vector(b, in_layer(b, l, "attn_q.bias"), bias, nq, &y->q_bias));
    TRY(vector(b, in_layer(b, l, "attn_k.bias"), bias, nkv, &y->k_bias));
    return vector(b, in_layer(b, l, "attn_v.bias"), bias, nkv, &y->v_bias);
}

static int attention(struct binder *b, int l, struct layer *y)
{
    const struct hparams *hp = &b->m->hp;
    const int nq = hp->n_head * hp->hd, ne = hp->n_embd, has = b->m->arch->has;
    const int must = has & HAS_QK_NORM ? REQUIRED : OPTIONAL;

    TRY(find(b, in_layer(b, l, "attn_qkv.weight")) ? fused_qkv(b, l, y) : separate_qkv(b, l, y));
    TRY(matrix(b, in_layer(b, l, "attn_output.weight"), nq, ne, &y->o));
    TRY(vector(b, in_layer(b, l, "attn_output.bias"), OPTIONAL, ne, &y->o_bias));
    TRY(head_norm(b, in_layer(b, l, "attn_q_norm"), must, hp->n_head, &y->q_norm));
    TRY(head_norm(b, in_layer(b, l, "attn_k_norm"), must, hp->n_kv, &y->k_norm));
    return vector(b, in_layer(b, l, "attn_sinks.weight"), has & HAS_SINKS ? REQUIRED : OPTIONAL,
                  hp->n_head, &y->sinks);
}

/* The norms in front of the blocks. Blocks side by side may share one. Falcon 40B has two, and
 * attn_norm_2 is that of the attention. gpt-oss calls the one in front of the feed-forward
 * post_attention_norm. */
static int front_norms(struct binder *b, int l, struct layer *y)
{
    const int ne = b->m->hp.n_embd, both = b->m->arch->norms == NORMS_BOTH;
    const char *of_attn = "attn_norm", *of_ffn = "ffn_norm";

    if (find(b, in_layer(b, l, "attn_norm_2.weight"))) {
        of_attn = "attn_norm_2";
        of_ffn = "attn_norm";
    } else if (!both && find(b, in_layer(b, l, "post_attention_norm.weight"))) {
        of_ffn = "post_attention_norm";
    }
    TRY(norm(b, in_layer(b, l, of_attn), REQUIRED, ne, &y->attn_norm));
    TRY(norm(b, in_layer(b, l, of_ffn), b->m->arch->parallel ? OPTIONAL : REQUIRED, ne,
             &y->ffn_norm));
    if (b->m->arch->parallel == PARALLEL_IF_SHARED)
        b->m->hp.parallel = !y->ffn_norm.w;
    return y->ffn_norm.w || b->m->hp.parallel ? CB_OK
                                              : cb_fail(CB_EFORMAT, "%s: tensor %s.weight: missing",
                                                        cb_gguf_path(b->m->gguf), b->name);
}

static int norms(struct binder *b, int l, struct layer *y)
{
    const int ne = b->m->hp.n_embd;

    if (b->m->arch->norms != NORMS_BEHIND)
        TRY(front_norms(b, l, y));
    if (b->m->arch->norms == NORMS_BEFORE)
        return CB_OK;
    TRY(norm(b, in_layer(b, l, "post_attention_norm"), REQUIRED, ne, &y->attn_post_norm));
    return norm(b, in_layer(b, l, "post_ffw_norm"), REQUIRED, ne, &y->ffn_post_norm);
}

/* The gate's rows may lie in front of those of up. */
static int fused_gate(struct binder *b, int l, struct ffn *f)
{
    const int ne = b->m->hp.n_embd, nf = b->m->hp.n_ff;
    const struct gguf_tensor *t;

    TRY(need(b, in_layer(b, l, "ffn_up.weight"), &t));
    TRY(check_shape(b, t, b->name, ne, 2 * (int64_t)nf, 1));
    take_rows(b, t, b->name, 0, nf, &f->gate);
    take_rows(b, t, b->name, nf, nf, &f->up);
    return CB_OK;
}

static int dense(struct binder *b, int l, struct ffn *f)
{
    const int ne = b->m->hp.n_embd, nf = b->m->hp.n_ff;
    const int gated = find(b, in_layer(b, l, "ffn_gate.weight")) != NULL;
    const struct gguf_tensor *up = find(b, in_layer(b, l, "ffn_up.weight"));

    if (!gated && up && up->dim[1] == 2 * (int64_t)nf)
        TRY(fused_gate(b, l, f));
    else {
        if (gated || b->m->arch->norm == NORM_RMS) /* only LayerNorm families do without a gate */
            TRY(matrix(b, in_layer(b, l, "ffn_gate.weight"), ne, nf, &f->gate));
        TRY(matrix(b, in_layer(b, l, "ffn_up.weight"), ne, nf, &f->up));
    }
    TRY(matrix(b, in_layer(b, l, "ffn_down.weight"), nf, ne, &f->down));
    TRY(vector(b, in_layer(b, l, "ffn_gate.bias"), OPTIONAL, nf, &f->gate_bias));
    TRY(vector(b, in_layer(b, l, "ffn_up.bias"), OPTIONAL, nf, &f->up_bias));
    return vector(b, in_layer(b, l, "ffn_down.bias"), OPTIONAL, ne, &f->down_bias);
}

/* A norm without weights */
static int plain_norm(int n, struct norm *out)
{
    *out = (struct norm){ .n = n, .n_set = 1, .w = cb_calloc((size_t)n, sizeof *out->w) };
    if (!out->w)
        return CB_ENOMEM;
    for (int i = 0; i < n; i++)
        out->w[i] = 1;
    return CB_OK;
}

/* ---- experts ---- */

/* blk.L.NAME.weight [n_expert][n_out][n_in] and blk.L.NAME.bias [n_expert][n_out] -> a matrix and a
 * vector of each expert, at offsets in struct ffn */
static int experts(struct binder *b, int l, const char *name, int n_in, int n_out, size_t weight_at,
                   size_t bias_at, struct ffn *f)
{
    const int n = b->m->hp.moe.n_expert;
    const struct gguf_tensor *t;
    char at[64], buf[72];
    float *bias = NULL;
    int err = CB_OK;

    snprintf(at, sizeof at, "%s", in_layer(b, l, name));
    TRY(need(b, part(&buf, at, "weight"), &t));
    TRY(check_shape(b, t, buf, n_in, n_out, n));
    for (int e = 0; e < n; e++)
        take_rows(b, t, buf, (int64_t)e * n_out, n_out,
                  (struct weight *)(void *)((char *)&f[e] + weight_at));
    if (!find(b, part(&buf, at, "bias")))
        return CB_OK;
    TRY(need(b, buf, &t));
    TRY(check_shape(b, t, buf, n_out, n, 1));
    TRY(to_f32(b, t, (int64_t)n * n_out, &bias));
    for (int e = 0; !err && e < n; e++)
        err = cut(bias, e * n_out, n_out, (float **)(void *)((char *)&f[e] + bias_at));
    free(bias);
    return err;
}

/* Every token reads the shared expert; its width is that of its matrix. */
static int shared_expert(struct binder *b, int l, struct moe *x)
{
    const int ne = b->m->hp.n_embd;
    const struct gguf_tensor *up = find(b, in_layer(b, l, "ffn_up_shexp.weight"));
    int nf;

    if (!up)
        return CB_OK;
    nf = up->dim[1] > 0 && up->dim[1] < 1 << 20 ? (int)up->dim[1] : 1;
    TRY(matrix(b, b->name, ne, nf, &x->shared.up));
    b->m->hp.n_ff_max = nf > b->m->hp.n_ff_max ? nf : b->m->hp.n_ff_max;
    TRY(matrix(b, in_layer(b, l, "ffn_gate_shexp.weight"), ne, nf, &x->shared.gate));
    TRY(matrix(b, in_layer(b, l, "ffn_down_shexp.weight"), nf, ne, &x->shared.down));
    if (find(b, in_layer(b, l, "ffn_gate_inp_shexp.weight"))) {
        const struct gguf_tensor *t;
        TRY(need(b, b->name, &t));
        TRY(check_shape(b, t, b->name, ne, 1, 1));
        take_rows(b, t, b->name, 0, 1, &x->shared_gate);
    }
    return CB_OK;
}

static int mixture(struct binder *b, int l, struct layer *y)
{
    const int ne = b->m->hp.n_embd, n = b->m->hp.moe.n_expert, nf = b->m->hp.moe.n_ff;
    struct moe *x = y->moe = cb_calloc(1, sizeof *x);

    if (!x || !(x->expert = cb_calloc((size_t)n, sizeof *x->expert)))
        return CB_ENOMEM;
    TRY(matrix(b, in_layer(b, l, "ffn_gate_inp.weight"), ne, n, &x->router));
    TRY(vector(b, in_layer(b, l, "ffn_gate_inp.bias"), OPTIONAL, n, &x->router_bias));
    TRY(vector(b, in_layer(b, l, "exp_probs_b.bias"), OPTIONAL, n, &x->choice_bias));
    TRY(experts(b, l, "ffn_gate_exps", ne, nf, offsetof(struct ffn, gate),
                offsetof(struct ffn, gate_bias), x->expert));
    TRY(experts(b, l, "ffn_up_exps", ne, nf, offsetof(struct ffn, up),
                offsetof(struct ffn, up_bias), x->expert));
    TRY(experts(b, l, "ffn_down_exps", nf, ne, offsetof(struct ffn, down),
                offsetof(struct ffn, down_bias), x->expert));
    return shared_expert(b, l, x);
}

/* ---- the whole model ---- */

static int layer(struct binder *b, int l)
{
    struct layer *y = &b->m->layer[l];

    TRY(norms(b, l, y));
    if (b->m->hp.norms_rotated)
        TRY(plain_norm(b->m->hp.hd, &y->rotated_norm));
    TRY(attention(b, l, y));
    return b->m->hp.moe.n_expert && find(b, in_layer(b, l, "ffn_gate_inp.weight"))
               ? mixture(b, l, y)
               : dense(b, l, &y->ffn);
}

static int embeddings(struct binder *b)
{
    struct cb_model *m = b->m;
    struct hparams *hp = &m->hp;
    const struct gguf_tensor *t;

    TRY(need(b, "token_embd.weight", &t));
    if (t->dim[1] < cb_tok_n_vocab(m->tok) || t->dim[1] > 1 << 24)
        return cb_fail(CB_EFORMAT, "%s: tensor token_embd.weight: %lld rows for %d tokens",
                       cb_gguf_path(m->gguf), (long long)t->dim[1], cb_tok_n_vocab(m->tok));
    hp->n_vocab = (int)t->dim[1];
    TRY(matrix(b, "token_embd.weight", hp->n_embd, hp->n_vocab, &m->embd));
    if (find(b, "output.weight"))
        TRY(matrix(b, "output.weight", hp->n_embd, hp->n_vocab, &m->output));
    else
        m->output = m->embd;
    TRY(vector(b, "output.bias", OPTIONAL, hp->n_vocab, &m->output_bias));
    return norm(b, "output_norm", REQUIRED, hp->n_embd, &m->out_norm);
}

/* Llama 3.1 and others store a divisor for each frequency, Phi two. */
static int rope_divisors(struct binder *b)
{
    struct rope_params *r = &b->m->hp.rope[0];
    const int n = b->m->hp.n_rot / 2;

    if (find(b, "rope_factors_long.weight")) {
        TRY(vector(b, "rope_factors_long.weight", REQUIRED, n, &r->divisor[1]));
        TRY(vector(b, "rope_factors_short.weight", REQUIRED, n, &r->divisor[0]));
    } else {
        TRY(vector(b, "rope_freqs.weight", OPTIONAL, n, &r->divisor[0]));
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; r->divisor[i] && j < n; j++)
            if (!isfinite(1 / r->divisor[i][j]))
                return cb_fail(CB_EFORMAT, "%s: factor %d of the rotation's frequencies is %g",
                               cb_gguf_path(b->m->gguf), j, (double)r->divisor[i][j]);
    return CB_OK;
}

/* A tensor without a place is a part of the model that would be left out. Files of old converters
 * hold tables of rotation, which nobody needs. */
static int check_all_bound(const struct binder *b)
{
    const struct gguf *g = b->m->gguf;

    for (uint64_t i = 0; i < cb_gguf_n_tensor(g); i++) {
        const struct gguf_str s = cb_gguf_tensor_at(g, i)->name;
        char name[65];

        snprintf(name, sizeof name, "%.*s", (int)(s.n < 64 ? s.n : 64), s.s);
        if (!b->bound[i] && !strstr(name, "rot_embd") && !strstr(name, "rope_f"))
            return cb_fail(CB_EUNSUPPORTED, "%s: tensor %s: family %s has no place for it",
                           cb_gguf_path(g), name, b->m->arch->name);
    }
    return CB_OK;
}

static int bind_all(struct binder *b)
{
    struct cb_model *m = b->m;

    TRY(embeddings(b));
    m->layer = cb_calloc((size_t)m->hp.n_layer, sizeof *m->layer);
    if (!m->layer)
        return CB_ENOMEM;
    for (int l = 0; l < m->hp.n_layer; l++)
        TRY(layer(b, l));
    TRY(rope_divisors(b));
    TRY(check_all_bound(b));
    return cb_hparams_layers(m);
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

struct weight *cb_weights_at(struct layer *y, int i, int n_expert)
{
    struct weight *const all[] = { &y->q, &y->k, &y->v, &y->o };

    if (i < 4)
        return all[i];
    i -= 4;
    if (!y->moe)
        return i < 3 ? of_ffn(&y->ffn, i) : NULL;
    if (i < 3)
        return of_ffn(&y->moe->shared, i);
    i -= 3;
    if (i < 2)
        return i ? &y->moe->router : &y->moe->shared_gate;
    i -= 2;
    return i < 3 * n_expert ? of_ffn(&y->moe->expert[i / 3], i % 3) : NULL;
}

static void free_norm(struct norm *x)
{
    free(x->w);
    free(x->b);
}

static void free_ffn(struct ffn *f)
{
    free(f->gate_bias);
    free(f->up_bias);
    free(f->down_bias);
}

static void free_moe(struct moe *x, int n_expert)
{
    if (!x)
        return;
    for (int e = 0; x->expert && e < n_expert; e++)
        free_ffn(&x->expert[e]);
    free(x->expert);
    free(x->router_bias);
    free(x->choice_bias);
    free(x);
}

static void free_layer(struct layer *y, int n_expert)
{
    struct norm *const norms[] = { &y->attn_norm,     &y->ffn_norm, &y->attn_post_norm,
                                   &y->ffn_post_norm, &y->q_norm,   &y->k_norm,
                                   &y->rotated_norm };
    float *const vectors[] = { y->q_bias, y->k_bias, y->v_bias, y->o_bias, y->sinks };

    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        free_norm(norms[i]);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        free(vectors[i]);
    free_ffn(&y->ffn);
    free_moe(y->moe, n_expert);
}

void cb_weights_free(struct cb_model *m)
{
    for (int l = 0; m->layer && l < m->hp.n_layer; l++)
        free_layer(&m->layer[l], m->hp.moe.n_expert);
    free(m->layer);
    free(m->global);
    free(m->output_bias);
    free_norm(&m->out_norm);
    for (int i = 0; i < ROPE_TABLES; i++)
        for (int j = 0; j < 2; j++)
            free(m->hp.rope[i].divisor[j]);
}
