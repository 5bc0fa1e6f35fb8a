/* SPDX-License-Identifier: MIT */
/* recurrent.c - layers that mix tokens without keys: their shapes in metadata, and their tensors.
 * The file of a delta net may have its rows by key head: a copy has all rows of a kind together.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "binder.h"
#include "device/recurrence.h"
#include "hparams.h"

/* ---- metadata ---- */

int cb_hp_is_mixed(const struct cb_model *m, int l)
{
    int listed = -1, every = 4, n_kv = 1, n_ff = 0;

    if (m->arch->mixer == MIX_NONE)
        return 0;
    switch (m->arch->mixed) {
    case MIXED_BESIDE:
    case MIXED_ALL:
        return 1;
    case MIXED_LISTED:
        TRY(cb_hp_at(m, "attention.recurrent_layers", OPTIONAL, 0, 1, l, &listed));
        TRY(cb_hp_int(m, "full_attention_interval", OPTIONAL, 1, 1024, &every));
        return listed < 0 ? (l + 1) % every != 0 : listed;
    case MIXED_BY_HEADS:
        break;
    }
    TRY(cb_hp_at(m, "attention.head_count_kv", OPTIONAL, 0, 1024, l, &n_kv));
    if (m->arch->single)
        TRY(cb_hp_at(m, "feed_forward_length", REQUIRED, 0, 1 << 20, l, &n_ff));
    return !n_kv && !n_ff;
}

/* Heads and states of delta nets and of Mamba-2 */
static int read_state(struct cb_model *m, struct mixer_params *p)
{
    enum { MOST = 1 << 16 };
    int inner = 0;

    TRY(cb_hp_int(m, "ssm.conv_kernel", REQUIRED, 2, CONV_MOST, &p->n_tap));
    if (m->arch->mixer == MIX_KDA) {
        TRY(cb_hp_int(m, "kda.head_dim", REQUIRED, 1, STATE_MOST_DK, &p->dk));
        p->n_head = p->n_group = m->hp.n_head;
        p->dv = p->dk;
        return CB_OK;
    }
    TRY(cb_hp_int(m, "ssm.state_size", REQUIRED, 1, STATE_MOST_DK, &p->dk));
    TRY(cb_hp_int(m, "ssm.time_step_rank", REQUIRED, 1, MOST, &p->n_head));
    p->n_group = 1;
    TRY(cb_hp_int(m, "ssm.group_count", OPTIONAL, 1, MOST, &p->n_group));
    TRY(cb_hp_int(m, "ssm.inner_size", REQUIRED, 1, 1 << 20, &inner));
    p->dv = inner / p->n_head;
    if (inner % p->n_head || p->n_head % p->n_group || p->n_group > MOST / p->dk)
        return cb_fail(CB_EFORMAT,
                       "%s: a state of %d numbers cannot be shared by %d heads in %d groups",
                       cb_gguf_path(m->gguf), inner, p->n_head, p->n_group);
    return CB_OK;
}

int cb_hp_mixer(struct cb_model *m)
{
    struct mixer_params *p = &m->hp.mix;

    if (m->arch->mixer == MIX_NONE)
        return CB_OK;
    if (m->arch->mixer == MIX_CONV)
        return cb_hp_int(m, "shortconv.l_cache", REQUIRED, 2, CONV_MOST, &p->n_tap);
    return read_state(m, p);
}

/* ---- tensors ---- */

/* n numbers of a tensor of any shape; *out stays NULL when it is optional and absent */
static int numbers(struct binder *b, const char *name, int must, int64_t n, float **out)
{
    const struct gguf_tensor *t;
    int64_t have;

    if (must == OPTIONAL && !cb_bind_find(b, name))
        return CB_OK;
    TRY(cb_bind_need(b, name, &t));
    have = t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
    if (have != n)
        return cb_fail(CB_EFORMAT, "%s: tensor %s: %lld numbers, expected %lld",
                       cb_gguf_path(b->m->gguf), name, (long long)have, (long long)n);
    return cb_bind_f32(b, t, n, out);
}

/* Taps of n channels, [n][n_tap] in the file -> columns `at`.. of x->tap */
static int taps(struct binder *b, const char *name, int at, int n, struct recurrent *x)
{
    const int n_tap = b->m->hp.mix.n_tap;
    float *w = NULL;

    TRY(numbers(b, name, REQUIRED, (int64_t)n * n_tap, &w));
    if (!x->tap && !(x->tap = cb_calloc((size_t)n_tap * (size_t)x->n_conv, sizeof *x->tap))) {
        free(w);
        return CB_ENOMEM;
    }
    for (int c = 0; c < n; c++)
        for (int j = 0; j < n_tap; j++)
            x->tap[(size_t)j * (size_t)x->n_conv + (size_t)(at + c)] =
                w[(size_t)c * (size_t)n_tap + (size_t)j];
    free(w);
    return CB_OK;
}

/* Queries are divided by sqrt(dk), after both have been brought to length 1. An RMS norm with these
 * weights, and eps 1e-6 / dk, does it. */
static int unit_weights(struct recurrent *x, int dk)
{
    if (!(x->unit = cb_calloc(2 * (size_t)dk, sizeof *x->unit)))
        return CB_ENOMEM;
    for (int i = 0; i < dk; i++) {
        x->unit[i] = 1.0f / (float)dk;
        x->unit[dk + i] = (float)(1.0 / __builtin_sqrt((double)dk));
    }
    return CB_OK;
}

/* Rows of a tensor that are in groups of `each`: a run of n of them, `at` within each group,
 * becomes a matrix of its own in x->own, from byte *used on. */
static void regroup(struct binder *b, const struct gguf_tensor *t, const char *name, int each,
                    int at, int n, struct recurrent *x, size_t *used, struct weight *w)
{
    const size_t row = cb_row_bytes(t->type, t->dim[0]);
    const int n_group = (int)(t->dim[1] / each);
    char *to = (char *)x->own + *used;

    cb_bind_take_rows(b, t, name, 0, n_group * n, w);
    w->raw = to;
    for (int g = 0; g < n_group; g++)
        memcpy(to + (size_t)g * (size_t)n * row,
               (const char *)t->data + ((size_t)g * (size_t)each + (size_t)at) * row,
               (size_t)n * row);
    *used += (size_t)n_group * (size_t)n * row;
}

static int own(struct recurrent *x, size_t bytes)
{
    x->own_bytes = bytes;
    x->own = cb_alloc_aligned(bytes, 1);
    return x->own ? CB_OK : CB_ENOMEM;
}

/* Qwen3-Next: beta and decay of a key head's value heads lie together. */
static int beta_and_rate(struct binder *b, int l, struct recurrent *x, const struct gguf_tensor *ba,
                         size_t *used)
{
    const struct mixer_params *p = &b->m->hp.mix;
    const int per = p->n_head / p->n_group;

    if (!ba) {
        TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ssm_beta.weight"), b->m->hp.n_embd, p->n_head,
                           &x->beta));
        return cb_bind_matrix(b, cb_bind_in_layer(b, l, "ssm_alpha.weight"), b->m->hp.n_embd,
                              p->n_head, &x->rate);
    }
    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, "ssm_ba.weight"), &ba));
    regroup(b, ba, b->name, 2 * per, 0, per, x, used, &x->beta);
    regroup(b, ba, b->name, 2 * per, per, per, x, used, &x->rate);
    return CB_OK;
}

/* Queries, keys, values and gates; old files have them by key head in one tensor. */
static int delta_in(struct binder *b, int l, struct recurrent *x, const struct gguf_tensor *in,
                    size_t *used)
{
    const struct mixer_params *p = &b->m->hp.mix;
    const int v = p->n_head / p->n_group * p->dv, each = 2 * p->dk + 2 * v;

    if (!in) {
        TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_qkv.weight"), b->m->hp.n_embd, x->n_conv,
                           &x->in[0]));
        return cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_gate.weight"), b->m->hp.n_embd,
                              p->n_head * p->dv, &x->gate);
    }
    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, "ssm_in.weight"), &in));
    regroup(b, in, b->name, each, 0, p->dk, x, used, &x->in[0]);
    regroup(b, in, b->name, each, p->dk, p->dk, x, used, &x->in[1]);
    regroup(b, in, b->name, each, 2 * p->dk, v, x, used, &x->in[2]);
    regroup(b, in, b->name, each, 2 * p->dk + v, v, x, used, &x->gate);
    return CB_OK;
}

/* The tensor of that name if it has these sizes, else NULL; *bytes grows by its size. */
static int find_grouped(struct binder *b, int l, const char *name, int n_out, int instead,
                        const struct gguf_tensor **out, size_t *bytes)
{
    *out = instead ? NULL : cb_bind_find(b, cb_bind_in_layer(b, l, name));
    if (!*out)
        return CB_OK;
    TRY(cb_bind_check_shape(b, *out, b->name, b->m->hp.n_embd, n_out, 1));
    *bytes += (*out)->size;
    return CB_OK;
}

static int delta(struct binder *b, int l, struct recurrent *x)
{
    const struct mixer_params *p = &b->m->hp.mix;
    const int n = p->n_head, nv = n * p->dv, nk = p->n_group * p->dk, ne = b->m->hp.n_embd;
    const struct gguf_tensor *ba, *in;
    size_t bytes = 0, used = 0;

    x->n_conv = 2 * nk + nv;
    TRY(find_grouped(b, l, "ssm_ba.weight", 2 * n, 0, &ba, &bytes));
    TRY(find_grouped(b, l, "ssm_in.weight", x->n_conv + nv,
                     cb_bind_find(b, cb_bind_in_layer(b, l, "attn_qkv.weight")) != NULL, &in,
                     &bytes));
    if (bytes)
        TRY(own(x, bytes));
    TRY(delta_in(b, l, x, in, &used));
    TRY(beta_and_rate(b, l, x, ba, &used));
    TRY(taps(b, cb_bind_in_layer(b, l, "ssm_conv1d.weight"), 0, x->n_conv, x));
    TRY(numbers(b, cb_bind_in_layer(b, l, "ssm_a"), REQUIRED, n, &x->a));
    TRY(numbers(b, cb_bind_in_layer(b, l, "ssm_dt.bias"), REQUIRED, n, &x->dt));
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "ssm_norm"), REQUIRED, p->dv, &x->norm));
    TRY(unit_weights(x, p->dk));
    return cb_bind_matrix(b, cb_bind_in_layer(b, l, "ssm_out.weight"), nv, ne, &x->out);
}

static int kda(struct binder *b, int l, struct recurrent *x)
{
    static const char *const matrix[] = { "attn_q.weight", "attn_k.weight", "attn_v.weight" };
    static const char *const conv[] = { "ssm_conv1d_q.weight", "ssm_conv1d_k.weight",
                                        "ssm_conv1d_v.weight" };
    const int d = b->m->hp.mix.dk, n = b->m->hp.mix.n_head, ne = b->m->hp.n_embd;

    x->n_conv = 3 * n * d;
    for (int i = 0; i < 3; i++) {
        TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, matrix[i]), ne, n * d, &x->in[i]));
        TRY(taps(b, cb_bind_in_layer(b, l, conv[i]), i * n * d, n * d, x));
    }
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ssm_f_a.weight"), ne, d, &x->rate_low));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ssm_f_b.weight"), d, n * d, &x->rate));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ssm_g_a.weight"), ne, d, &x->gate_low));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ssm_g_b.weight"), d, n * d, &x->gate));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ssm_beta.weight"), ne, n, &x->beta));
    TRY(numbers(b, cb_bind_in_layer(b, l, "ssm_a"), REQUIRED, n, &x->a));
    TRY(numbers(b, cb_bind_in_layer(b, l, "ssm_dt.bias"), REQUIRED, n * d, &x->dt));
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "ssm_norm"), REQUIRED, d, &x->norm));
    TRY(unit_weights(x, d));
    return cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_output.weight"), n * d, ne, &x->out);
}

/* The norm of each group of the output has weights of its own. */
static int group_norm(struct binder *b, int l, int must, int n, int n_group, struct norm *out)
{
    *out = (struct norm){ .n = n / n_group, .n_set = n_group };
    return numbers(b, cb_bind_in_layer(b, l, "ssm_norm.weight"), must, n, &out->w);
}

static int mamba2(struct binder *b, int l, struct recurrent *x)
{
    const struct mixer_params *p = &b->m->hp.mix;
    const int n = p->n_head, inner = n * p->dv, ne = b->m->hp.n_embd;
    const int beside = b->m->arch->mixed == MIXED_BESIDE;
    const struct gguf_tensor *in;

    x->n_conv = inner + 2 * p->n_group * p->dk;
    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, "ssm_in.weight"), &in));
    TRY(cb_bind_check_shape(b, in, b->name, ne, inner + x->n_conv + n, 1));
    if (inner % p->n_group)
        return cb_fail(CB_EFORMAT, "%s: %d numbers cannot be normed in %d groups",
                       cb_gguf_path(b->m->gguf), inner, p->n_group);
    cb_bind_take_rows(b, in, b->name, 0, inner, &x->gate);
    cb_bind_take_rows(b, in, b->name, inner, x->n_conv, &x->in[0]);
    cb_bind_take_rows(b, in, b->name, inner + x->n_conv, n, &x->rate);
    TRY(taps(b, cb_bind_in_layer(b, l, "ssm_conv1d.weight"), 0, x->n_conv, x));
    TRY(numbers(b, cb_bind_in_layer(b, l, "ssm_conv1d.bias"), OPTIONAL, x->n_conv, &x->tap_bias));
    TRY(numbers(b, cb_bind_in_layer(b, l, "ssm_a"), REQUIRED, n, &x->a));
    TRY(numbers(b, cb_bind_in_layer(b, l, "ssm_d"), REQUIRED, n, &x->skip));
    TRY(numbers(b, cb_bind_in_layer(b, l, "ssm_dt.bias"), REQUIRED, n, &x->dt));
    TRY(group_norm(b, l, beside ? OPTIONAL : REQUIRED, inner, p->n_group, &x->norm));
    return cb_bind_matrix(b, cb_bind_in_layer(b, l, "ssm_out.weight"), inner, ne, &x->out);
}

static int conv(struct binder *b, int l, struct recurrent *x)
{
    const int ne = b->m->hp.n_embd;
    const struct gguf_tensor *in;

    x->n_conv = ne;
    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, "shortconv.in_proj.weight"), &in));
    TRY(cb_bind_check_shape(b, in, b->name, ne, 3 * (int64_t)ne, 1));
    cb_bind_take_rows(b, in, b->name, 0, 3 * ne, &x->in[0]);
    TRY(taps(b, cb_bind_in_layer(b, l, "shortconv.conv.weight"), 0, ne, x));
    return cb_bind_matrix(b, cb_bind_in_layer(b, l, "shortconv.out_proj.weight"), ne, ne, &x->out);
}

int cb_recurrent_bind(struct binder *b, int l, struct layer *y)
{
    struct recurrent *x = y->mixer = cb_calloc(1, sizeof *x);

    if (!x)
        return CB_ENOMEM;
    x->kind = b->m->arch->mixer;
    x->tiled = b->m->arch->tiled;
    x->sigmoid_gate = x->kind == MIX_KDA || b->m->arch->sigmoid_gate;
    switch (x->kind) {
    case MIX_DELTA:
        return delta(b, l, x);
    case MIX_KDA:
        return kda(b, l, x);
    case MIX_MAMBA2:
        return mamba2(b, l, x);
    case MIX_CONV:
    case MIX_NONE:
        break;
    }
    return conv(b, l, x);
}

struct weight *cb_recurrent_weight(struct recurrent *x, int i)
{
    struct weight *const all[] = { &x->in[0], &x->in[1],    &x->in[2],    &x->gate, &x->rate,
                                   &x->beta,  &x->gate_low, &x->rate_low, &x->out };

    return i < (int)(sizeof all / sizeof *all) ? all[i] : NULL;
}

void cb_recurrent_free(struct recurrent *x)
{
    if (!x)
        return;
    free(x->tap);
    free(x->tap_bias);
    free(x->a);
    free(x->dt);
    free(x->skip);
    free(x->unit);
    free(x->norm.w);
    free(x->norm.b);
    free(x->own);
    free(x);
}
