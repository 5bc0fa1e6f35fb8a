/* SPDX-License-Identifier: MIT */
/* compressed.c - metadata and matrices of attention over compressed rows, and of the streams that
 * go with it (DeepSeek-V4). */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "binder.h"
#include "hparams.h"

/* ---- metadata ---- */

enum { MOST_LOW = 1 << 17, MOST_RATIO = 1 << 16 };

/* A count that the numbers of two keys must fit: CB_EFORMAT names both. */
static int check_fit(const struct cb_model *m, int fits, const char *name, int of, const char *what)
{
    return fits ? CB_OK
                : cb_fail(CB_EFORMAT, "%s: key %s.%s: %d does not go with %s",
                          cb_gguf_path(m->gguf), m->arch->name, name, of, what);
}

static int read_index(struct cb_model *m)
{
    struct compress_params *p = &m->hp.compress;

    TRY(cb_hp_int(m, "attention.indexer.head_count", OPTIONAL, 0, 1024, &p->n_index));
    if (!p->n_index)
        return CB_OK;
    TRY(cb_hp_int(m, "attention.indexer.key_length", REQUIRED, 2, KV_MAX_HD, &p->index_hd));
    TRY(cb_hp_int(m, "attention.indexer.top_k", REQUIRED, 1, 1 << 24, &p->top_k));
    return check_fit(m, p->index_hd % 2 == 0 && p->index_hd >= m->hp.n_rot,
                     "attention.indexer.key_length", p->index_hd, "rope.dimension_count");
}

/* Layers with entries have a base of their own, and the file's scaling, which leaves cos and sin as
 * they are; the others have the base of rope.freq_base, unscaled. */
static int read_bases(struct cb_model *m)
{
    struct rope_params *r = &m->hp.rope[0], *plain = &m->hp.rope[1];

    *plain = (struct rope_params){ .n_rot = m->hp.n_rot,
                                   .base = r->base,
                                   .factor = 1,
                                   .attn_factor = 1,
                                   .n_ctx_orig = m->hp.n_ctx_train };
    r->log_mul = 1;
    return cb_hp_float(m, "attention.compress_rope_freq_base", REQUIRED, 1, 1e12, &r->base);
}

int cb_hp_compressed(struct cb_model *m)
{
    struct hparams *hp = &m->hp;
    struct compress_params *p = &hp->compress;
    int n_kv = 1;

    if (!(m->arch->has & HAS_COMPRESSED))
        return CB_OK;
    hp->one_row = 1;
    TRY(cb_hp_int(m, "attention.head_count_kv", OPTIONAL, 1, 1, &n_kv));
    TRY(check_fit(m, hp->latent.rank == 0, "attention.kv_lora_rank", hp->latent.rank,
                  "attention over compressed rows"));
    TRY(check_fit(m, hp->window > 0, "attention.sliding_window", hp->window,
                  "attention over compressed rows"));
    TRY(check_fit(m, hp->n_shared_kv == 0, "attention.shared_kv_layers", hp->n_shared_kv,
                  "attention over compressed rows"));
    TRY(cb_hp_int(m, "attention.q_lora_rank", REQUIRED, 1, MOST_LOW, &p->low));
    TRY(cb_hp_int(m, "attention.output_group_count", REQUIRED, 1, hp->n_head, &p->n_group));
    TRY(check_fit(m, hp->n_head % p->n_group == 0, "attention.output_group_count", p->n_group,
                  "attention.head_count"));
    TRY(cb_hp_int(m, "attention.output_lora_rank", REQUIRED, 1, MOST_LOW / p->n_group,
                  &p->group_low));
    TRY(cb_hp_int(m, "hyper_connection.count", REQUIRED, 2, MOST_STREAMS, &hp->n_stream));
    TRY(cb_hp_int(m, "hyper_connection.sinkhorn_iterations", REQUIRED, 1, 1000, &p->n_step));
    TRY(cb_hp_float(m, "hyper_connection.epsilon", REQUIRED, 0, 1, &p->stream_eps));
    TRY(read_index(m));
    return read_bases(m);
}

/* The array may be longer than the model, by blocks that guess later tokens. */
int cb_hp_ratio(const struct cb_model *m, int l, int *out)
{
    const char *path = cb_gguf_path(m->gguf);
    const struct gguf_kv *kv;
    char key[128];
    double v;

    kv = cb_gguf_find(m->gguf, cb_hp_key(m, "attention.compress_ratios", &key));
    if (!kv)
        return cb_fail(CB_EFORMAT, "%s: key %s: missing", path, key);
    if (kv->type != GGUF_ARRAY || kv->elem == GGUF_STRING || kv->elem == GGUF_ARRAY)
        return cb_fail(CB_EFORMAT, "%s: key %s: is no array of numbers", path, key);
    if (kv->n < (uint64_t)m->hp.n_layer)
        return cb_fail(CB_EFORMAT, "%s: key %s: %llu values for %d layers", path, key,
                       (unsigned long long)kv->n, m->hp.n_layer);
    v = cb_gguf_array_num(kv, (uint64_t)l);
    if (!(v >= 0 && v <= MOST_RATIO) || v != (int)v)
        return cb_fail(CB_EFORMAT,
                       "%s: key %s: %.10g of layer %d is no number of tokens from 0 to "
                       "%d",
                       path, key, v, l, MOST_RATIO);
    *out = (int)v;
    return CB_OK;
}

/* ---- streams ---- */

/* NAME_fn, NAME_scale and NAME_base of layer l; l < 0: of no layer, n_out numbers */
static int blend(struct binder *b, int l, const char *name, int n_out, int n_scale,
                 struct stream_blend **out)
{
    const int n_in = b->m->hp.n_stream * b->m->hp.n_embd;
    struct stream_blend *x = *out = cb_calloc(1, sizeof *x);
    static const char *const part[] = { "fn", "scale", "base" };
    char at[3][64];

    if (!x)
        return CB_ENOMEM;
    for (int i = 0; i < 3; i++) {
        char of[40];
        snprintf(of, sizeof of, "%s_%s.weight", name, part[i]);
        snprintf(at[i], sizeof at[i], "%s", l < 0 ? of : cb_bind_in_layer(b, l, of));
    }
    TRY(cb_bind_matrix(b, at[0], n_in, n_out, &x->fn));
    TRY(cb_bind_vector(b, at[1], REQUIRED, n_scale, &x->scale));
    return cb_bind_vector(b, at[2], REQUIRED, n_out, &x->base);
}

int cb_stream_blend_bind(struct binder *b, int l, struct layer *y)
{
    const int n = b->m->hp.n_stream;

    TRY(blend(b, l, "hc_attn", (2 + n) * n, 3, &y->blend[0]));
    TRY(blend(b, l, "hc_ffn", (2 + n) * n, 3, &y->blend[1]));
    return l < b->m->hp.n_layer - 1 ? CB_OK : blend(b, -1, "output_hc", n, 1, &y->blend[2]);
}

void cb_stream_blend_free(struct stream_blend *x)
{
    if (!x)
        return;
    free(x->scale);
    free(x->base);
    free(x);
}

/* ---- attention ---- */

/* Tensors NAME_kv, NAME_gate, NAME_ape and NAME_norm */
static int compressor(struct binder *b, int l, const char *name, int n, int overlap, int ratio,
                      struct compressor *x)
{
    const int ne = b->m->hp.n_embd, width = overlap ? 2 * n : n;
    const struct gguf_tensor *t;
    char at[64];

    *x = (struct compressor){ .n = n, .overlap = overlap };
    snprintf(at, sizeof at, "%s_kv.weight", name);
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, at), ne, width, &x->value));
    snprintf(at, sizeof at, "%s_gate.weight", name);
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, at), ne, width, &x->logit));
    snprintf(at, sizeof at, "%s_ape.weight", name);
    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, at), &t));
    TRY(cb_bind_check_shape(b, t, b->name, width, ratio, 1));
    TRY(cb_bind_f32(b, t, (int64_t)width * ratio, &x->place));
    snprintf(at, sizeof at, "%s_norm", name);
    return cb_bind_norm(b, cb_bind_in_layer(b, l, at), REQUIRED, n, &x->norm);
}

/* Entries of layers that score them overlap. */
static int entries(struct binder *b, int l, struct layer *y)
{
    const struct compress_params *p = &b->m->hp.compress;
    struct compressed *x = y->compressed;
    const int scores = cb_bind_find(b, cb_bind_in_layer(b, l, "indexer.attn_q_b.weight")) != NULL;

    TRY(cb_hp_ratio(b->m, l, &x->ratio));
    if (!x->ratio)
        return CB_OK;
    TRY(compressor(b, l, "attn_compressor", y->hd, scores, x->ratio, &x->entry));
    if (!scores)
        return CB_OK;
    if (!p->n_index)
        return cb_fail(CB_EFORMAT,
                       "%s: key %s.attention.indexer.head_count: missing, and layer %d "
                       "scores its entries",
                       cb_gguf_path(b->m->gguf), b->m->arch->name, l);
    TRY(compressor(b, l, "indexer_compressor", p->index_hd, 1, x->ratio, &x->index));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "indexer.attn_q_b.weight"), p->low,
                       p->n_index * p->index_hd, &x->index_q));
    return cb_bind_matrix(b, cb_bind_in_layer(b, l, "indexer.proj.weight"), b->m->hp.n_embd,
                          p->n_index, &x->weigh);
}

/* The groups' matrices: rows of one, or a matrix each */
static int groups(struct binder *b, int l, struct compressed *x, int n_in)
{
    const struct compress_params *p = &b->m->hp.compress;
    const struct gguf_tensor *t;

    x->n_group = p->n_group;
    if (!(x->group = cb_calloc((size_t)p->n_group, sizeof *x->group)))
        return CB_ENOMEM;
    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, "attn_output_a.weight"), &t));
    if (t->dim[2] > 1)
        TRY(cb_bind_check_shape(b, t, b->name, n_in, p->group_low, p->n_group));
    else
        TRY(cb_bind_check_shape(b, t, b->name, n_in, (int64_t)p->n_group * p->group_low, 1));
    for (int g = 0; g < p->n_group; g++)
        cb_bind_take_rows(b, t, b->name, (int64_t)g * p->group_low, p->group_low, &x->group[g]);
    return CB_OK;
}

int cb_compressed_bind(struct binder *b, int l, struct layer *y)
{
    const struct hparams *hp = &b->m->hp;
    const struct compress_params *p = &hp->compress;
    const int nq = hp->n_head * y->hd;
    struct compressed *x = y->compressed = cb_calloc(1, sizeof *x);

    if (!x)
        return CB_ENOMEM;
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_q_a.weight"), hp->n_embd, p->low,
                       &x->q_low));
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "attn_q_a_norm"), REQUIRED, p->low, &x->q_low_norm));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_q_b.weight"), p->low, nq, &y->q));
    TRY(cb_bind_plain_norm(y->hd, &y->q_norm));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_kv.weight"), hp->n_embd, y->hd, &y->k));
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "attn_kv_a_norm"), REQUIRED, y->hd, &y->k_norm));
    TRY(groups(b, l, x, nq / p->n_group));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "attn_output_b.weight"), p->n_group * p->group_low,
                       hp->n_embd, &y->o));
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "attn_sinks.weight"), REQUIRED, hp->n_head,
                       &y->sinks));
    return entries(b, l, y);
}

struct weight *cb_compressed_weight(struct compressed *x, int i)
{
    struct weight *const all[] = { &x->q_low,       &x->entry.value, &x->entry.logit, &x->index_q,
                                   &x->index.value, &x->index.logit, &x->weigh };
    const int n = (int)(sizeof all / sizeof *all);

    return i < n ? all[i] : i < n + x->n_group ? &x->group[i - n] : NULL;
}

static void free_compressor(struct compressor *c)
{
    free(c->place);
    cb_bind_free_norm(&c->norm);
}

void cb_compressed_free(struct compressed *x)
{
    if (!x)
        return;
    free_compressor(&x->entry);
    free_compressor(&x->index);
    cb_bind_free_norm(&x->q_low_norm);
    free(x->group);
    free(x);
}
