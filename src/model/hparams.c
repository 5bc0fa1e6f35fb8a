/* SPDX-License-Identifier: MIT */
/* hparams.c - reads and checks the metadata of a model. */
#include "hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

enum { MAX_HD = KV_MAX_HD, MOST_CTX = 1 << 24 }; /* a longer training context is no plan's */

const char *cb_hp_key(const struct cb_model *m, const char *name, char (*key)[128])
{
    snprintf(*key, sizeof *key, "%s.%s", m->arch->name, name);
    return *key;
}

static int missing(const struct cb_model *m, const char *key)
{
    return cb_fail(CB_EFORMAT, "%s: key %s: missing", cb_gguf_path(m->gguf), key);
}

int cb_hp_int(const struct cb_model *m, const char *name, int need, int min, int max, int *out)
{
    char key[128];
    int64_t v = *out;
    const int got = cb_gguf_i64(m->gguf, cb_hp_key(m, name, &key), &v);

    if (got < 0)
        return got;
    if (!got)
        return need == REQUIRED ? missing(m, key) : CB_OK;
    if (v < min || v > max)
        return cb_fail(CB_EFORMAT, "%s: key %s: %lld is not between %d and %d",
                       cb_gguf_path(m->gguf), key, (long long)v, min, max);
    *out = (int)v;
    return CB_OK;
}

/* What layer l has of the array kv, named key, of numbers */
static int array_at(const struct cb_model *m, const char *key, const struct gguf_kv *kv, int l,
                    double *v)
{
    if (kv->elem == GGUF_STRING || kv->elem == GGUF_ARRAY)
        return cb_fail(CB_EFORMAT, "%s: key %s: is no array of numbers", cb_gguf_path(m->gguf),
                       key);
    if (kv->n != (uint64_t)m->hp.n_layer && kv->n != (uint64_t)m->hp.n_block)
        return cb_fail(CB_EFORMAT, "%s: key %s: %llu values for %d layers", cb_gguf_path(m->gguf),
                       key, (unsigned long long)kv->n, m->hp.n_layer);
    /* the block after the last layer may have none of its own: it is like the last one */
    *v = cb_gguf_array_num(kv, (uint64_t)l < kv->n ? (uint64_t)l : kv->n - 1);
    return CB_OK;
}

int cb_hp_at(const struct cb_model *m, const char *name, int need, int min, int max, int l,
             int *out)
{
    char key[128];
    const struct gguf_kv *kv = cb_gguf_find(m->gguf, cb_hp_key(m, name, &key));
    double v;

    if (!kv || kv->type != GGUF_ARRAY)
        return cb_hp_int(m, name, need, min, max, out);
    TRY(array_at(m, key, kv, l, &v));
    if (!(v >= min && v <= max))
        return cb_fail(CB_EFORMAT, "%s: key %s: %.10g is not between %d and %d",
                       cb_gguf_path(m->gguf), key, v, min, max);
    *out = (int)v;
    return CB_OK;
}

/* The largest of all layers' */
static int hp_most(const struct cb_model *m, const char *name, int need, int min, int max, int *out)
{
    int most = *out, v;

    for (int l = 0; l < m->hp.n_layer; l++) {
        v = *out;
        TRY(cb_hp_at(m, name, need, min, max, l, &v));
        most = l && v < most ? most : v;
    }
    *out = most;
    return CB_OK;
}

/* The number of all layers that have one: zeros of an array stand for layers without */
static int hp_common(const struct cb_model *m, const char *name, int max, int *out)
{
    char key[128];
    int common = 0, v;

    for (int l = 0; l < m->hp.n_layer; l++) {
        TRY(cb_hp_at(m, name, REQUIRED, 0, max, l, &v));
        if (common && v && v != common)
            return cb_fail(CB_EUNSUPPORTED, "%s: key %s: layers of %d and of %d: not supported",
                           cb_gguf_path(m->gguf), cb_hp_key(m, name, &key), common, v);
        common = v ? v : common;
    }
    if (!common)
        return cb_fail(CB_EFORMAT, "%s: key %s: 0 is not between 1 and %d", cb_gguf_path(m->gguf),
                       cb_hp_key(m, name, &key), max);
    *out = common;
    return CB_OK;
}

int cb_hp_float(const struct cb_model *m, const char *name, int need, double min, double max,
                float *out)
{
    char key[128];
    const int got = cb_gguf_f32(m->gguf, cb_hp_key(m, name, &key), out);

    if (got < 0)
        return got;
    if (!got)
        return need == REQUIRED ? missing(m, key) : CB_OK;
    if (!((double)*out >= min && (double)*out <= max))
        return cb_fail(CB_EFORMAT, "%s: key %s: %.10g is not between %.10g and %.10g",
                       cb_gguf_path(m->gguf), key, (double)*out, min, max);
    return CB_OK;
}

int cb_hp_float_at(const struct cb_model *m, const char *name, double min, double max, int l,
                   float *out)
{
    char key[128];
    const struct gguf_kv *kv = cb_gguf_find(m->gguf, cb_hp_key(m, name, &key));
    double v;

    if (!kv || kv->type != GGUF_ARRAY)
        return cb_hp_float(m, name, OPTIONAL, min, max, out);
    TRY(array_at(m, key, kv, l, &v));
    if (!(v >= min && v <= max))
        return cb_fail(CB_EFORMAT, "%s: key %s: %.10g is not between %.10g and %.10g",
                       cb_gguf_path(m->gguf), key, v, min, max);
    *out = (float)v;
    return CB_OK;
}

static int flag(const struct cb_model *m, const char *name, int *out)
{
    char key[128];
    const int got = cb_gguf_bool(m->gguf, cb_hp_key(m, name, &key), out);

    return got < 0 ? got : CB_OK;
}

/* ---- the family ---- */

static int unknown_family(const struct cb_model *m, struct gguf_str s)
{
    char list[1024] = "";
    size_t n = 0;

    for (int i = 0; cb_arch_at(i) && n < sizeof list; i++)
        n +=
            (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", cb_arch_at(i)->name);
    return cb_fail(CB_EUNSUPPORTED,
                   "%s: key general.architecture: family '%.*s' is not supported; there are %s",
                   cb_gguf_path(m->gguf), (int)(s.n < 40 ? s.n : 40), s.s, list);
}

/* Encoders, of a known family or not, say that their tokens see those after them. */
static int check_causal(const struct cb_model *m, struct gguf_str arch)
{
    char key[128];
    int causal = 1;

    snprintf(key, sizeof key, "%.*s.attention.causal", (int)(arch.n < 64 ? arch.n : 64), arch.s);
    if (cb_gguf_bool(m->gguf, key, &causal) < 0)
        return CB_EFORMAT;
    return causal ? CB_OK
                  : cb_fail(CB_EUNSUPPORTED,
                            "%s: key %s: an encoder, whose tokens see later ones; only "
                            "decoders are supported",
                            cb_gguf_path(m->gguf), key);
}

static int read_arch(struct cb_model *m)
{
    struct gguf_str s;
    const int got = cb_gguf_string(m->gguf, "general.architecture", &s);

    if (got < 0)
        return got;
    if (!got)
        return missing(m, "general.architecture");
    if (s.n == 4 && !memcmp(s.s, "clip", 4))
        return cb_fail(CB_EUNSUPPORTED,
                       "%s: key general.architecture: clip: the part of a model that reads images "
                       "or sound (mmproj), which is not supported; the model's own file runs on "
                       "text without it",
                       cb_gguf_path(m->gguf));
    if (cb_gguf_find(m->gguf, "adapter.type"))
        return cb_fail(CB_EUNSUPPORTED, "%s: an adapter, which needs a model to be put onto",
                       cb_gguf_path(m->gguf));
    TRY(check_causal(m, s));
    m->arch = cb_arch_find(s);
    return m->arch ? CB_OK : unknown_family(m, s);
}

/* ---- rotation ---- */

/* A file that gives a factor alone, under its first name maybe, scales linearly. */
static int read_scaling(struct cb_model *m, enum rope_scaling *out, float *factor)
{
    char key[128], name[41];
    struct gguf_str type = { "none", 4 };
    float by = 0;
    int found;

    TRY(cb_hp_float(m, "rope.scale_linear", OPTIONAL, 0, 1e6, &by));
    TRY(cb_hp_float(m, "rope.scaling.factor", OPTIONAL, 0, 1e6, &by));
    if (by > 0)
        type = (struct gguf_str){ "linear", 6 };
    TRY(cb_gguf_string(m->gguf, cb_hp_key(m, "rope.scaling.type", &key), &type));
    snprintf(name, sizeof name, "%.*s", (int)(type.n < 40 ? type.n : 40), type.s);
    found = cb_rope_scaling_find(name);
    if (found < 0)
        return cb_fail(CB_EUNSUPPORTED, "%s: key %s: rope scaling '%s' is not supported",
                       cb_gguf_path(m->gguf), key, name);
    *out = (enum rope_scaling)found;
    *factor = by > 0 && *out != ROPE_NONE ? by : 1;
    return CB_OK;
}

static int read_rope(struct cb_model *m)
{
    struct hparams *hp = &m->hp;
    struct rope_params *r = &hp->rope[0];

    *r = (struct rope_params){ .n_rot = hp->n_rot,
                               .base = 10000,
                               .factor = 1,
                               .n_ctx_orig = hp->n_ctx_train,
                               .attn_factor = 1,
                               .beta_fast = 32,
                               .beta_slow = 1,
                               .whole_ramp = 1 };
    TRY(cb_hp_float(m, "rope.freq_base", OPTIONAL, 1, 1e12, &r->base));
    TRY(read_scaling(m, &r->scaling, &r->factor));
    TRY(cb_hp_int(m, "rope.scaling.original_context_length", OPTIONAL, 1, 1 << 30, &r->n_ctx_orig));
    TRY(cb_hp_float(m, "rope.scaling.attn_factor", OPTIONAL, 1e-3, 1e3, &r->attn_factor));
    TRY(cb_hp_float(m, "rope.scaling.yarn_log_multiplier", OPTIONAL, 0, 1e3, &r->log_mul));
    TRY(cb_hp_float(m, "rope.scaling.yarn_beta_fast", OPTIONAL, 1e-3, 1e6, &r->beta_fast));
    TRY(cb_hp_float(m, "rope.scaling.yarn_beta_slow", OPTIONAL, 1e-3, 1e6, &r->beta_slow));
    return CB_OK;
}

/* What the caller asks for replaces what the file says. */
static int ask_rope(struct cb_model *m, const struct cb_model_params *p)
{
    struct rope_params *r = &m->hp.rope[0];
    const int scaling = p->rope_scaling ? cb_rope_scaling_find(p->rope_scaling)
                        : p->rope_scale > 0 && r->scaling == ROPE_NONE ? ROPE_LINEAR
                                                                       : (int)r->scaling;

    if (scaling < 0 || (p->rope_scaling && scaling == ROPE_LONG))
        return cb_fail(CB_EARG, "rope scaling: '%s' is not none, linear, dynamic or yarn",
                       p->rope_scaling);
    if (!(p->rope_scale >= 0 && p->rope_scale <= 1e6f))
        return cb_fail(CB_EARG, "rope scale: %g is not between 0 and 1e6", (double)p->rope_scale);
    if (!(p->rope_freq_base >= 0 && p->rope_freq_base <= 1e12f))
        return cb_fail(CB_EARG, "rope base: %g is not between 0 and 1e12",
                       (double)p->rope_freq_base);
    if (p->rope_scaling && scaling != ROPE_NONE && !(p->rope_scale > 0) && r->scaling == ROPE_NONE)
        return cb_fail(CB_EARG, "rope scaling %s: needs a scale", p->rope_scaling);
    r->scaling = (enum rope_scaling)scaling;
    r->factor = p->rope_scale > 0 ? p->rope_scale : r->factor;
    r->base = p->rope_freq_base > 0 ? p->rope_freq_base : r->base;
    return CB_OK;
}

/* ---- shapes ---- */

/* A head's sizes are under names of their own where the file gives those of the stored rows. */
static int read_latent(struct cb_model *m)
{
    struct hparams *hp = &m->hp;
    struct latent_params *p = &hp->latent;
    const char *path = cb_gguf_path(m->gguf);
    int key = 0;

    TRY(cb_hp_int(m, "attention.q_lora_rank", OPTIONAL, 0, 1 << 17, &p->low));
    TRY(cb_hp_int(m, "rope.dimension_count", REQUIRED, 2, MAX_HD, &hp->n_rot));
    TRY(cb_hp_int(m, "attention.key_length", REQUIRED, 2, 1 << 16, &key));
    TRY(cb_hp_int(m, "attention.value_length", REQUIRED, 1, 1 << 16, &p->value));
    TRY(cb_hp_int(m, "attention.key_length_mla", OPTIONAL, 2, 1 << 16, &key));
    TRY(cb_hp_int(m, "attention.value_length_mla", OPTIONAL, 1, 1 << 16, &p->value));
    hp->n_kv = 1;
    hp->hd = p->rank + hp->n_rot;
    p->key = key - hp->n_rot;
    if (hp->n_rot % 2 || hp->hd % 2 || hp->hd > MAX_HD)
        return cb_fail(CB_EFORMAT, "%s: latent of %d, rotated %d: must be even, and at most %d",
                       path, p->rank, hp->n_rot, MAX_HD);
    if (p->key < 1 || p->key > p->rank || p->value > p->rank)
        return cb_fail(
            CB_EFORMAT,
            "%s: heads of %d and %d rotated numbers and values of %d do not fit a latent "
            "of %d",
            path, p->key, hp->n_rot, p->value, p->rank);
    return CB_OK;
}

static int read_heads(struct cb_model *m)
{
    struct hparams *hp = &m->hp;
    const char *path = cb_gguf_path(m->gguf);
    int v;

    if (m->arch->mixed == MIXED_ALL) { /* heads of attention are a form */
        hp->n_head = hp->n_kv = 1;
        hp->hd = hp->n_rot = 2;
        return CB_OK;
    }
    TRY(hp_common(m, "attention.head_count", 1024, &hp->n_head));
    TRY(cb_hp_int(m, "attention.kv_lora_rank", OPTIONAL, 0, MAX_HD, &hp->latent.rank));
    if (hp->latent.rank)
        return read_latent(m);
    hp->hd = hp->n_embd / hp->n_head;
    TRY(cb_hp_int(m, "attention.key_length", OPTIONAL, 2, MAX_HD, &hp->hd));
    if (hp->hd < 2 || hp->hd > MAX_HD)
        return cb_fail(CB_EFORMAT, "%s: head_dim %d is not between 2 and %d", path, hp->hd, MAX_HD);
    v = hp->hd;
    TRY(cb_hp_int(m, "attention.value_length", OPTIONAL, 2, MAX_HD, &v));
    if (v != hp->hd)
        return cb_fail(CB_EUNSUPPORTED, "%s: keys are %d wide and values %d: not supported", path,
                       hp->hd, v);
    hp->n_rot = hp->hd;
    TRY(cb_hp_int(m, "rope.dimension_count", OPTIONAL, 2, hp->hd, &hp->n_rot));
    if (hp->n_rot % 2 || hp->hd % 2)
        return cb_fail(CB_EFORMAT, "%s: head_dim %d, rotated %d: both must be even", path, hp->hd,
                       hp->n_rot);
    return CB_OK;
}

static int read_scales(struct cb_model *m)
{
    struct hparams *hp = &m->hp;
    char key[128];
    /* files of Nemotron-H give the eps of RMS norms under the other name */
    const int layer_norm =
        m->arch->norm == NORM_LAYER ||
        !cb_gguf_find(m->gguf, cb_hp_key(m, "attention.layer_norm_rms_epsilon", &key));

    hp->norm_eps = 1e-5f;
    TRY(cb_hp_float(
        m, layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
        REQUIRED, 0, 1, &hp->norm_eps));
    hp->attn_scale = 1.0f / sqrtf((float)(hp->latent.rank ? hp->latent.key + hp->n_rot : hp->hd));
    hp->embd_scale = hp->resid_scale = hp->logit_scale = 1;
    TRY(cb_hp_float(m, "attention.scale", OPTIONAL, 1e-6, 1e3, &hp->attn_scale));
    TRY(cb_hp_float(m, "attn_logit_softcapping", OPTIONAL, 0, 1e6, &hp->attn_cap));
    TRY(cb_hp_float(m, "final_logit_softcapping", OPTIONAL, 0, 1e6, &hp->logit_cap));
    TRY(cb_hp_float(m, "embedding_scale", OPTIONAL, 1e-6, 1e6, &hp->embd_scale));
    TRY(cb_hp_float(m, "residual_scale", OPTIONAL, 1e-6, 1e6, &hp->resid_scale));
    return cb_hp_float(m, "logit_scale", OPTIONAL, 1e-6, 1e6, &hp->logit_scale);
}

/* Rotation is of the first numbers of the index heads, as many as of the others. */
static int read_selector(struct cb_model *m)
{
    struct selector_params *p = &m->hp.selector;

    if (!m->arch->selects)
        return CB_OK;
    TRY(cb_hp_int(m, "attention.indexer.head_count", REQUIRED, 1, 1024, &p->n_head));
    TRY(cb_hp_int(m, "attention.indexer.key_length", REQUIRED, 2, MAX_HD, &p->hd));
    TRY(cb_hp_int(m, "attention.indexer.top_k", REQUIRED, 1, MOST_CTX, &p->top_k));
    if (m->arch->selects == SELECTS_BLOCKS) {
        TRY(cb_hp_int(m, "attention.indexer.block_size", REQUIRED, 1, MOST_CTX, &p->block));
        TRY(cb_hp_int(m, "attention.indexer.local_blocks", REQUIRED, 0, p->top_k, &p->local));
    }
    if (p->hd % 2 || p->hd < m->hp.n_rot)
        return cb_fail(CB_EFORMAT,
                       "%s: key %s.attention.indexer.key_length: %d must be even, and at least the "
                       "%d numbers that are rotated",
                       cb_gguf_path(m->gguf), m->arch->name, p->hd, m->hp.n_rot);
    return CB_OK;
}

static int read_temperature(struct cb_model *m)
{
    struct temperature *t = &m->hp.temperature;

    TRY(cb_hp_float(m, "attention.temperature_scale", OPTIONAL, 0, 1e3, &t->scale));
    t->length = m->hp.rope[0].n_ctx_orig;
    return cb_hp_int(m, "attention.temperature_length", OPTIONAL, 1, 1 << 30, &t->length);
}

static int read_groups(struct cb_model *m)
{
    struct moe_params *e = &m->hp.moe;

    TRY(cb_hp_int(m, "expert_group_count", OPTIONAL, 0, MOST_GROUPS, &e->n_group));
    if (e->n_group < 2) {
        e->n_group = 0;
        return CB_OK;
    }
    e->n_group_used = e->n_group;
    TRY(cb_hp_int(m, "expert_group_used_count", OPTIONAL, 1, e->n_group, &e->n_group_used));
    if (e->n_expert % e->n_group || e->n_used > e->n_expert / e->n_group * e->n_group_used)
        return cb_fail(CB_EFORMAT, "%s: %d of %d experts cannot be chosen in %d of %d groups",
                       cb_gguf_path(m->gguf), e->n_used, e->n_expert, e->n_group_used, e->n_group);
    return CB_OK;
}

static int read_experts(struct cb_model *m)
{
    enum { SOFTMAX = 1, SIGMOID, SOFTMAX_OF_CHOSEN, ROOT_SOFTPLUS };
    struct moe_params *e = &m->hp.moe;
    int gating = SOFTMAX;

    TRY(cb_hp_int(m, "expert_count", OPTIONAL, 0, 1024, &e->n_expert));
    if (!e->n_expert)
        return CB_OK;
    TRY(hp_most(m, "expert_used_count", REQUIRED, 0, e->n_expert, &e->n_used));
    TRY(cb_hp_int(m, "expert_gating_func", OPTIONAL, SOFTMAX, ROOT_SOFTPLUS, &gating));
    TRY(cb_hp_int(m, "moe_latent_size", OPTIONAL, 0, 1 << 17, &e->n_latent));
    e->scale = 1;
    TRY(cb_hp_float(m, "expert_weights_scale", OPTIONAL, 0, 1e3, &e->scale));
    if (e->scale <= 0)
        e->scale = 1;
    TRY(flag(m, "expert_weights_norm", &e->normalises));
    TRY(read_groups(m));
    TRY(cb_hp_int(m, "hash_layer_count", OPTIONAL, 0, m->hp.n_layer, &e->n_listed));
    e->sigmoid = gating == SIGMOID;
    e->root = gating == ROOT_SOFTPLUS;
    /* a softmax of the chosen logits alone is a softmax of all, scaled to sum 1 */
    e->normalises |= gating == SOFTMAX_OF_CHOSEN;
    return CB_OK;
}

/* Alternating updates: one of the streams goes through a layer. */
static int read_altup(struct cb_model *m)
{
    struct hparams *hp = &m->hp;

    hp->altup = 1;
    hp->n_stream = 4;
    hp->n_input = 256;
    TRY(cb_hp_int(m, "altup.num_inputs", OPTIONAL, 2, MOST_STREAMS, &hp->n_stream));
    return cb_hp_int(m, "altup.active_idx", OPTIONAL, 0, hp->n_stream - 1, &hp->active);
}

/* Residual streams, and what layers are told of each token: in models with embeddings of n-grams
 * the length is that of these */
static int read_streams(struct cb_model *m)
{
    struct hparams *hp = &m->hp;

    hp->n_stream = 1;
    if (m->arch->has & HAS_ALTUP)
        TRY(read_altup(m));
    if (!(m->arch->has & HAS_STREAMS))
        return cb_hp_int(m, "embedding_length_per_layer_input", OPTIONAL, 0, 1 << 16, &hp->n_input);
    TRY(cb_hp_int(m, "hyper_connection.count", REQUIRED, 2, MOST_STREAMS, &hp->n_stream));
    return cb_hp_int(m, "hyper_connection.low_rank", REQUIRED, 1, 1 << 16, &hp->stream_rank);
}

int cb_hp_need_ff(const struct cb_model *m)
{
    char key[128];

    return m->arch->mixed == MIXED_ALL ||
                   cb_gguf_find(m->gguf, cb_hp_key(m, "expert_feed_forward_length", &key))
               ? OPTIONAL
               : REQUIRED;
}

int cb_hparams_read(struct cb_model *m, const struct cb_model_params *p)
{
    struct hparams *hp = &m->hp;
    int n_later = 0; /* blocks that guess tokens after the next one */

    TRY(read_arch(m));
    TRY(cb_hp_int(m, "pooling_type", OPTIONAL, 0, 4, &hp->pooling));
    TRY(cb_hp_int(m, "block_count", REQUIRED, 1, 1024, &hp->n_block));
    if (!cb_model_has_target(m)) /* which has no others */
        TRY(cb_hp_int(m, "nextn_predict_layers", OPTIONAL, 0, hp->n_block - 1, &n_later));
    hp->n_layer = hp->n_block - n_later;
    TRY(cb_hp_int(m, "embedding_length", REQUIRED, 1, 1 << 17, &hp->n_embd));
    TRY(read_streams(m));
    TRY(hp_most(m, "feed_forward_length", cb_hp_need_ff(m), 0, 1 << 20, &hp->n_ff));
    TRY(read_heads(m));
    hp->n_ctx_train = 4096;
    TRY(cb_hp_int(m, "context_length", OPTIONAL, 1, 1 << 30, &hp->n_ctx_train));
    if (hp->n_ctx_train > MOST_CTX) {
        cb_model_log(m, CB_LOG_NOTE, "%s: context_length %d is taken as %d", cb_gguf_path(m->gguf),
                     hp->n_ctx_train, MOST_CTX);
        hp->n_ctx_train = MOST_CTX;
    }
    TRY(cb_hp_int(m, "attention.sliding_window", OPTIONAL, 0, 1 << 30, &hp->window));
    if (!cb_model_has_target(m))
        TRY(cb_hp_int(m, "attention.shared_kv_layers", OPTIONAL, 0, hp->n_layer - 1,
                      &hp->n_shared_kv));
    TRY(read_scales(m));
    TRY(read_rope(m));
    TRY(ask_rope(m, p));
    hp->n_ff_max = hp->n_ff > hp->n_input ? hp->n_ff : hp->n_input;
    hp->parallel = m->arch->parallel == PARALLEL;
    hp->rope_kind = m->arch->rope;
    hp->nope = m->arch->nope;
    hp->latent.eps = hp->norm_eps;
    TRY(read_selector(m));
    TRY(read_temperature(m));
    TRY(read_experts(m));
    hp->one_row = hp->latent.rank > 0;
    return m->arch->adapt ? m->arch->adapt(m) : CB_OK;
}
