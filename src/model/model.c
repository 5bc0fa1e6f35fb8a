/* SPDX-License-Identifier: MIT */
/* model.c - opens a model: reads the hyper-parameters, binds each tensor to its place, checks every
 * shape, and hands the matrices to the device. */
#include "model.h"
#include "par/affinity.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"
#include "head_prune.h"

/* ---- hyper-parameters ---- */

enum { REQUIRED, OPTIONAL };
enum { MAX_HD = 512 }; /* of the kernels */
/* A longer training context is no model's, and its memory plan nobody's. */
enum { MOST_CTX = 1 << 24 };

/* PREFIX.NAME as an integer of min..max */
static int hp_int(const struct cb_model *m, const char *name, int need, int min, int max, int *out)
{
    char key[128];
    int64_t v = *out;
    int got;

    snprintf(key, sizeof key, "%s.%s", m->arch->name, name);
    got = cb_gguf_i64(m->gguf, key, &v);
    if (got < 0)
        return got;
    if (!got && need == REQUIRED)
        return cb_fail(CB_EFORMAT, "%s: key %s: missing", cb_gguf_path(m->gguf), key);
    if (v < min || v > max)
        return cb_fail(CB_EFORMAT, "%s: key %s: %lld is not between %d and %d",
                       cb_gguf_path(m->gguf), key, (long long)v, min, max);
    *out = (int)v;
    return CB_OK;
}

static int hp_float(const struct cb_model *m, const char *name, int need, double min, double max,
                    float *out)
{
    char key[128];
    int got;

    snprintf(key, sizeof key, "%s.%s", m->arch->name, name);
    got = cb_gguf_f32(m->gguf, key, out);
    if (got < 0)
        return got;
    if (!got && need == REQUIRED)
        return cb_fail(CB_EFORMAT, "%s: key %s: missing", cb_gguf_path(m->gguf), key);
    if (!((double)*out >= min && (double)*out <= max))
        return cb_fail(CB_EFORMAT, "%s: key %s: %g is not between %g and %g", cb_gguf_path(m->gguf),
                       key, (double)*out, min, max);
    return CB_OK;
}

static int read_rope_scaling(struct cb_model *m)
{
    char key[128];
    struct gguf_str type = { "none", 4 };

    snprintf(key, sizeof key, "%s.rope.scaling.type", m->arch->name);
    TRY(cb_gguf_string(m->gguf, key, &type));
    if (type.n == 4 && !memcmp(type.s, "none", 4))
        return CB_OK;
    if (type.n == 6 && !memcmp(type.s, "linear", 6))
        return hp_float(m, "rope.scaling.factor", REQUIRED, 1e-3, 1e6, &m->hp.rope_scale);
    return cb_fail(CB_EUNSUPPORTED, "%s: key %s: rope scaling '%.*s' is not supported",
                   cb_gguf_path(m->gguf), key, (int)(type.n < 40 ? type.n : 40), type.s);
}

static int read_hparams(struct cb_model *m)
{
    struct hparams *hp = &m->hp;
    const char *path = cb_gguf_path(m->gguf);

    TRY(hp_int(m, "block_count", REQUIRED, 1, 1024, &hp->n_layer));
    TRY(hp_int(m, "embedding_length", REQUIRED, 1, 1 << 17, &hp->n_embd));
    TRY(hp_int(m, "feed_forward_length", REQUIRED, 1, 1 << 20, &hp->n_ff));
    TRY(hp_int(m, "attention.head_count", REQUIRED, 1, 1024, &hp->n_head));
    hp->n_kv = hp->n_head;
    TRY(hp_int(m, "attention.head_count_kv", OPTIONAL, 1, 1024, &hp->n_kv));
    if (hp->n_head % hp->n_kv)
        return cb_fail(CB_EFORMAT, "%s: %d heads cannot share %d KV heads", path, hp->n_head,
                       hp->n_kv);
    hp->hd = hp->n_embd / hp->n_head;
    TRY(hp_int(m, "attention.key_length", OPTIONAL, 2, MAX_HD, &hp->hd));
    if (hp->hd < 2 || hp->hd > MAX_HD)
        return cb_fail(CB_EFORMAT, "%s: head_dim %d is not between 2 and %d", path, hp->hd, MAX_HD);
    hp->n_rot = hp->hd;
    TRY(hp_int(m, "rope.dimension_count", OPTIONAL, 2, hp->hd, &hp->n_rot));
    if (hp->n_rot % 2 || hp->hd % 2)
        return cb_fail(CB_EFORMAT, "%s: head_dim %d, rotated %d: both must be even", path, hp->hd,
                       hp->n_rot);
    hp->n_ctx_train = 4096;
    TRY(hp_int(m, "context_length", OPTIONAL, 1, 1 << 30, &hp->n_ctx_train));
    if (hp->n_ctx_train > MOST_CTX) {
        cb_model_log(m, CB_LOG_NOTE, "%s: context_length %d is taken as %d", path, hp->n_ctx_train,
                     MOST_CTX);
        hp->n_ctx_train = MOST_CTX;
    }
    TRY(hp_int(m, "attention.sliding_window", OPTIONAL, 0, 1 << 30, &hp->window));
    hp->norm_eps = 1e-5f;
    TRY(hp_float(m, "attention.layer_norm_rms_epsilon", REQUIRED, 0, 1, &hp->norm_eps));
    hp->rope_base = 10000;
    TRY(hp_float(m, "rope.freq_base", OPTIONAL, 1, 1e12, &hp->rope_base));
    hp->rope_scale = 1;
    return read_rope_scaling(m);
}

/* ---- tensors ---- */

static int find(const struct cb_model *m, const char *name, const struct gguf_tensor **out)
{
    *out = cb_gguf_tensor(m->gguf, name);
    if (!*out)
        return cb_fail(CB_EFORMAT, "%s: tensor %s: missing", cb_gguf_path(m->gguf), name);
    return CB_OK;
}

static int check_shape(const struct cb_model *m, const struct gguf_tensor *t, const char *name,
                       int64_t d0, int64_t d1)
{
    if (t->dim[0] == d0 && t->dim[1] == d1 && t->dim[2] == 1 && t->dim[3] == 1)
        return CB_OK;
    return cb_fail(CB_EFORMAT, "%s: tensor %s: shape %lldx%lldx%lldx%lld, expected %lldx%lld",
                   cb_gguf_path(m->gguf), name, (long long)t->dim[0], (long long)t->dim[1],
                   (long long)t->dim[2], (long long)t->dim[3], (long long)d0, (long long)d1);
}

/* A matrix [n_out][n_in] */
static int bind(struct cb_model *m, const char *name, int n_in, int n_out, struct weight *w)
{
    const struct gguf_tensor *t;

    TRY(find(m, name, &t));
    TRY(check_shape(m, t, name, n_in, n_out));
    snprintf(w->name, sizeof w->name, "%s", name);
    w->type = t->type;
    w->n_in = n_in;
    w->n_out = n_out;
    w->raw = t->data;
    m->weights_bytes += t->size;
    m->n_params += (int64_t)n_in * n_out;
    return CB_OK;
}

/* A vector as f32; *out stays NULL when it is optional and absent */
static int bind_vector(struct cb_model *m, const char *name, int need, int n, float **out)
{
    const struct gguf_tensor *t = cb_gguf_tensor(m->gguf, name);

    if (!t && need == OPTIONAL)
        return CB_OK;
    TRY(find(m, name, &t));
    TRY(check_shape(m, t, name, n, 1));
    *out = cb_calloc((size_t)n, sizeof **out);
    if (!*out)
        return CB_ENOMEM;
    cb_dtype[t->type].to_f32(t->data, *out, n);
    m->weights_bytes += t->size;
    m->n_params += n;
    return CB_OK;
}

/* blk.L.NAME */
static const char *in_layer(char (*buf)[64], int l, const char *name)
{
    snprintf(*buf, sizeof *buf, "blk.%d.%s", l, name);
    return *buf;
}

static int bind_layer(struct cb_model *m, int l)
{
    const struct hparams *hp = &m->hp;
    struct layer *y = &m->layer[l];
    const int nq = hp->n_head * hp->hd, nkv = hp->n_kv * hp->hd, ne = hp->n_embd;
    const int bias = m->arch->qkv_bias ? REQUIRED : OPTIONAL;
    char b[64];

    TRY(bind_vector(m, in_layer(&b, l, "attn_norm.weight"), REQUIRED, ne, &y->attn_norm));
    TRY(bind(m, in_layer(&b, l, "attn_q.weight"), ne, nq, &y->q));
    TRY(bind(m, in_layer(&b, l, "attn_k.weight"), ne, nkv, &y->k));
    TRY(bind(m, in_layer(&b, l, "attn_v.weight"), ne, nkv, &y->v));
    TRY(bind(m, in_layer(&b, l, "attn_output.weight"), nq, ne, &y->o));
    TRY(bind_vector(m, in_layer(&b, l, "attn_q.bias"), bias, nq, &y->q_bias));
    TRY(bind_vector(m, in_layer(&b, l, "attn_k.bias"), bias, nkv, &y->k_bias));
    TRY(bind_vector(m, in_layer(&b, l, "attn_v.bias"), bias, nkv, &y->v_bias));
    TRY(bind_vector(m, in_layer(&b, l, "attn_output.bias"), OPTIONAL, ne, &y->o_bias));
    TRY(bind_vector(m, in_layer(&b, l, "ffn_norm.weight"), REQUIRED, ne, &y->ffn_norm));
    TRY(bind(m, in_layer(&b, l, "ffn_gate.weight"), ne, hp->n_ff, &y->gate));
    TRY(bind(m, in_layer(&b, l, "ffn_up.weight"), ne, hp->n_ff, &y->up));
    return bind(m, in_layer(&b, l, "ffn_down.weight"), hp->n_ff, ne, &y->down);
}

static int bind_all(struct cb_model *m)
{
    struct hparams *hp = &m->hp;
    const struct gguf_tensor *t;

    TRY(find(m, "token_embd.weight", &t));
    if (t->dim[1] < cb_tok_n_vocab(m->tok) || t->dim[1] > 1 << 24)
        return cb_fail(CB_EFORMAT, "%s: tensor token_embd.weight: %lld rows for %d tokens",
                       cb_gguf_path(m->gguf), (long long)t->dim[1], cb_tok_n_vocab(m->tok));
    hp->n_vocab = (int)t->dim[1];
    TRY(bind(m, "token_embd.weight", hp->n_embd, hp->n_vocab, &m->embd));
    if (cb_gguf_tensor(m->gguf, "output.weight"))
        TRY(bind(m, "output.weight", hp->n_embd, hp->n_vocab, &m->output));
    else
        m->output = m->embd;
    TRY(bind_vector(m, "output_norm.weight", REQUIRED, hp->n_embd, &m->out_norm));
    m->layer = cb_calloc((size_t)hp->n_layer, sizeof *m->layer);
    if (!m->layer)
        return CB_ENOMEM;
    for (int l = 0; l < hp->n_layer; l++)
        TRY(bind_layer(m, l));
    return CB_OK;
}

/* ---- rotation ---- */

/* Llama 3.1 and others store a divisor for each frequency. */
static int read_rope_freqs(struct cb_model *m)
{
    const int n = m->hp.n_rot / 2;
    float *factor = NULL;
    int err;

    m->inv_freq = cb_calloc((size_t)n, sizeof *m->inv_freq);
    if (!m->inv_freq)
        return CB_ENOMEM;
    err = bind_vector(m, "rope_freqs.weight", OPTIONAL, n, &factor);
    for (int i = 0; !err && i < n; i++) {
        const double f = pow((double)m->hp.rope_base, -2.0 * i / m->hp.n_rot);
        m->inv_freq[i] = (float)(f / (factor ? (double)factor[i] : 1) / (double)m->hp.rope_scale);
        if (!isfinite(m->inv_freq[i]))
            err = cb_fail(CB_EFORMAT, "%s: tensor rope_freqs.weight: factor %d is %g",
                          cb_gguf_path(m->gguf), i, factor ? (double)factor[i] : 1);
    }
    free(factor);
    return err;
}

void cb_model_rope_table(const struct cb_model *m, int pos0, int n_tok, float *cs)
{
    const int n = m->hp.n_rot / 2;
    for (int t = 0; t < n_tok; t++)
        for (int i = 0; i < n; i++) {
            /* the angle is rounded to f32 as in training; at position 1e5 the error is 4e-3 rad */
            const float a = (float)(pos0 + t) * m->inv_freq[i];
            cs[((size_t)t * (size_t)n + (size_t)i) * 2] = cosf(a);
            cs[((size_t)t * (size_t)n + (size_t)i) * 2 + 1] = sinf(a);
        }
}

void cb_model_log(const struct cb_model *m, enum cb_log_level level, const char *fmt, ...)
{
    char line[512];
    va_list ap;

    if (!m->log)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    m->log(m->log_arg, level, line);
}

/* ---- open and close ---- */

static int load(struct cb_model *m, struct weight *w)
{
    TRY(m->dev->ops->load(m->dev, w));
    m->packed_bytes += w->packed_bytes;
    if (w->packed) { /* the device has its own copy: the file's pages need not stay in memory */
        const struct gguf_tensor *t = cb_gguf_tensor(m->gguf, w->name);
        if (t)
            cb_gguf_release_pages(m->gguf, t);
    }
    return CB_OK;
}

static struct weight *matrix(struct layer *y, int i)
{
    struct weight *const all[] = { &y->q, &y->k, &y->v, &y->o, &y->gate, &y->up, &y->down };
    return i < (int)(sizeof all / sizeof *all) ? all[i] : NULL;
}

static int load_all(struct cb_model *m)
{
    struct weight *w;
    for (int l = 0; l < m->hp.n_layer; l++)
        for (int i = 0; (w = matrix(&m->layer[l], i)); i++)
            TRY(load(m, w));
    return load(m, &m->output);
}

int cb_model_prune_head(struct cb_model *m)
{
    struct head_prune *p;

    if (m->has_looked)
        return CB_OK;
    TRY(cb_head_prune_new(m->dev, &m->output, m->packed_bytes, &p));
    m->head_prune = p;
    m->has_looked = 1;
    return CB_OK;
}

const char *cb_model_main_type(const struct cb_model *m)
{
    uint64_t bytes[DT_COUNT] = { 0 };
    int best = 0;
    for (uint64_t i = 0; i < cb_gguf_n_tensor(m->gguf); i++) {
        const struct gguf_tensor *t = cb_gguf_tensor_at(m->gguf, i);
        if (t->n_dim > 1 && t->name.n >= 4 && !memcmp(t->name.s, "blk.", 4))
            bytes[t->type] += t->size;
    }
    for (int i = 1; i < DT_COUNT; i++)
        if (bytes[i] > bytes[best])
            best = i;
    return cb_dtype[best].name;
}

static int read_name(struct cb_model *m)
{
    struct gguf_str s = { "", 0 };
    TRY(cb_gguf_string(m->gguf, "general.name", &s));
    m->name = cb_calloc(s.n + 1, 1);
    if (!m->name)
        return CB_ENOMEM;
    memcpy(m->name, s.s, s.n);
    m->name[cb_utf8_plain(m->name, s.n, "")] = '\0'; /* it is printed, and goes into JSON */
    return CB_OK;
}

/* FNV-1a (Fowler, Noll, Vo) */
static uint64_t hash(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *b = bytes;

    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x100000001b3;
    return h;
}

/* Weights are left out: files of one model differ in type and in the factors folded into norms. */
static uint64_t fingerprint(const struct cb_model *m)
{
    const struct hparams *hp = &m->hp;
    const int32_t shape[] = { hp->n_layer, hp->n_embd, hp->n_head, hp->n_kv, hp->hd, hp->n_ff };
    uint64_t h = hash(0xcbf29ce484222325, shape, sizeof shape);
    char piece[64];

    h = hash(h, m->arch->name, strlen(m->arch->name));
    h = hash(h, &hp->rope_base, sizeof hp->rope_base);
    for (int32_t i = 0; i < cb_tok_n_vocab(m->tok); i++) {
        const int n = cb_tok_piece(m->tok, i, 1, piece, sizeof piece);
        h = hash(h, &n, sizeof n);
        h = hash(h, piece, (size_t)n < sizeof piece ? (size_t)n : sizeof piece);
    }
    return h ? h : 1;
}

static int open_arch(struct cb_model *m)
{
    struct gguf_str s;
    const int got = cb_gguf_string(m->gguf, "general.architecture", &s);

    if (got < 0)
        return got;
    if (!got)
        return cb_fail(CB_EFORMAT, "%s: key general.architecture: missing", cb_gguf_path(m->gguf));
    m->arch = cb_arch_find(s);
    if (!m->arch)
        return cb_fail(CB_EUNSUPPORTED,
                       "%s: key general.architecture: family '%.*s' is not supported",
                       cb_gguf_path(m->gguf), (int)(s.n < 40 ? s.n : 40), s.s);
    return CB_OK;
}

static int open_device(struct cb_model *m, const struct cb_model_params *p)
{
    const int mode = cb_numa_mode(p->numa);
    const struct team_params team = { p->n_threads, mode > 0 ? (enum numa_mode)mode : NUMA_OFF,
                                      p->pin };
    const struct device_want want = { .isa = p->isa, .matmul = p->matmul };

    if (mode < 0)
        return cb_fail(CB_EARG, "numa: '%s' is not off, distribute or isolate", p->numa);
    TRY(cb_device_open_team(p->device, &team, &want, &m->dev));
    if (*cb_par_note(m->dev->par))
        cb_model_log(m, CB_LOG_NOTE, "%s", cb_par_note(m->dev->par));
    cb_model_log(m, CB_LOG_DETAIL, "device %s: %s, %d threads", m->dev->name, m->dev->isa,
                 cb_par_threads(m->dev->par));
    return CB_OK;
}

static int set_params(struct cb_model *m, const struct cb_model_params *p)
{
    m->rows_only = p->rows_only;
    m->small_pages = p->small_pages;
    m->log = p->log;
    m->log_arg = p->log_arg;
    if (!p->preset_dir)
        return CB_OK;
    m->preset_dir = strdup(p->preset_dir);
    return m->preset_dir ? CB_OK : cb_fail(CB_ENOMEM, "out of memory");
}

static int open_steps(struct cb_model *m, const char *path, const struct cb_model_params *p)
{
    TRY(set_params(m, p));
    TRY(cb_gguf_open(path, &m->gguf));
    if (!p->vocab_only) {
        TRY(open_arch(m));
        TRY(read_hparams(m));
    }
    TRY(read_name(m));
    TRY(cb_tok_open(m->gguf, &m->tok));
    m->hp.n_vocab = cb_tok_n_vocab(m->tok);
    if (p->vocab_only)
        return CB_OK;
    TRY(bind_all(m));
    TRY(read_rope_freqs(m));
    m->fingerprint = fingerprint(m);
    TRY(open_device(m, p));
    return load_all(m);
}

struct cb_model_params cb_model_defaults(void)
{
    return (struct cb_model_params){ 0 };
}

int cb_model_open(const char *path, const struct cb_model_params *params, cb_model **out)
{
    const struct cb_model_params none = cb_model_defaults();
    struct cb_model *m;
    int err;

    *out = NULL;
    if (!path)
        return cb_fail(CB_EARG, "model: no path");
    m = cb_calloc(1, sizeof *m);
    if (!m)
        return CB_ENOMEM;
    err = open_steps(m, path, params ? params : &none);
    if (err) {
        cb_model_close(m);
        return err;
    }
    *out = m;
    return CB_OK;
}

static void close_layer(struct cb_model *m, struct layer *y)
{
    struct weight *w;
    for (int i = 0; (w = matrix(y, i)); i++)
        if (m->dev)
            m->dev->ops->unload(m->dev, w);
    free(y->attn_norm);
    free(y->ffn_norm);
    free(y->q_bias);
    free(y->k_bias);
    free(y->v_bias);
    free(y->o_bias);
}

void cb_model_close(cb_model *m)
{
    if (!m || (m->dev && cb_device_lock(m->dev)))
        return;
    for (int l = 0; m->layer && l < m->hp.n_layer; l++)
        close_layer(m, &m->layer[l]);
    if (m->dev) {
        cb_head_prune_free(m->dev, m->head_prune);
        m->dev->ops->unload(m->dev, &m->output);
        cb_device_unlock(m->dev);
    }
    cb_device_close(m->dev);
    cb_tok_close(m->tok);
    cb_gguf_close(m->gguf);
    free(m->layer);
    free(m->out_norm);
    free(m->inv_freq);
    free(m->name);
    free(m->preset_dir);
    free(m);
}
