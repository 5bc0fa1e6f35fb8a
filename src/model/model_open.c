/* SPDX-License-Identifier: MIT */
/* model_open.c - opens a model: reads its metadata (hparams.c), binds its tensors (weights.c), and
 * hands the matrices to the device. */
#include "model.h"
#include "model_over.h"
#include "par/affinity.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters.h"
#include "assistant.h"
#include "base/err.h"
#include "base/utf8.h"
#include "device/node_weights.h"
#include "device/pick.h"
#include "device/split_rows.h"
#include "gguf/samples.h"
#include "head_prune.h"
#include "hparams.h"
#include "layer_share.h"
#include "mtp_head.h"
#include "text/conversation_text.h"
#include "weights.h"

/* ---- open and close ---- */

static int load(struct cb_model *m, struct weight *w)
{
    const uint64_t others = (uint64_t)(w->n_out - cb_split_rows_own(m->dev, w->n_out));

    TRY(m->dev->ops->load(m->dev, w));
    if (w->raw != m->embd.raw) /* of which every rank needs all rows */
        m->weights_bytes -= others * cb_row_bytes(w->type, w->n_in);
    m->packed_bytes += w->packed_bytes;
    if (w->packed) { /* the device has its own copy: the file's pages need not stay in memory */
        const size_t bytes = (size_t)w->n_out * cb_row_bytes(w->type, w->n_in);
        cb_gguf_release_pages(m->gguf, w->raw, bytes);
        m->open_bytes = bytes > m->open_bytes ? bytes : m->open_bytes;
    }
    for (struct lora *x = w->lora; x; x = x->next) {
        TRY(m->dev->ops->load(m->dev, &x->a));
        TRY(m->dev->ops->load(m->dev, &x->b));
        m->packed_bytes += x->a.packed_bytes + x->b.packed_bytes;
    }
    return CB_OK;
}

static void unload(struct cb_model *m, struct weight *w)
{
    for (struct lora *x = w->lora; x; x = x->next) {
        m->dev->ops->unload(m->dev, &x->a);
        m->dev->ops->unload(m->dev, &x->b);
    }
    m->dev->ops->unload(m->dev, w);
}

static int load_all(struct cb_model *m)
{
    struct weight *w;

    if (m->mtp && m->dev->ops->memory) { /* the head's rows and states are the host's */
        cb_model_log(m, CB_LOG_NOTE, "the head for later tokens stays unused on device %s",
                     m->dev->name);
        cb_mtp_close(m);
    }
    for (int l = 0; l < m->hp.n_layer + (m->mtp != NULL); l++)
        for (int i = 0; (w = cb_weights_at(&m->layer[l], i, m->hp.moe.n_expert)); i++)
            if (w->raw)
                TRY(load(m, w));
    for (int i = 0; m->mtp && (w = cb_mtp_weight(m->mtp, i)); i++)
        if (w->raw)
            TRY(load(m, w));
    for (int i = 0; m->assistant && (w = cb_assistant_weight(m->assistant, i)); i++)
        TRY(load(m, w));
    if (cb_layer_share_has_head(m))
        TRY(load(m, &m->output));
    return cb_mtp_open(m);
}

int cb_model_rope(const struct cb_model *m, int n_ctx, struct rope rope[ROPE_TABLES])
{
    for (int i = 0; i < ROPE_TABLES; i++)
        if (m->hp.rope[i].base > 0)
            TRY(cb_rope_open(&rope[i], &m->hp.rope[i], n_ctx));
    return CB_OK;
}

int cb_model_prune_head(struct cb_model *m)
{
    struct head_prune *p;

    if (m->has_looked || m->output_bias ||
        m->output.lora) /* its bounds know nothing of what is added */
        return CB_OK;
    TRY(cb_head_prune_new(m->dev, &m->output, m->packed_bytes, &p));
    m->head_prune = p;
    m->has_looked = 1;
    return CB_OK;
}

int cb_model_token_trie(struct cb_model *m, const struct token_trie **out)
{
    struct token_trie *made, *there = m->token_trie;

    if (!there) {
        TRY(cb_token_trie_new(m->tok, m->hp.n_vocab, &made));
        if (atomic_compare_exchange_strong(&m->token_trie, &there, made))
            there = made;
        else /* another thread was quicker */
            cb_token_trie_free(made);
    }
    *out = there;
    return CB_OK;
}

const char *cb_model_main_type(const struct cb_model *m)
{
    uint64_t bytes[DT_COUNT + 1] = { 0 };
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
static int fingerprint(const struct cb_model *m, uint64_t *out)
{
    const struct hparams *hp = &m->hp;
    const int32_t shape[] = { hp->n_layer, hp->n_embd, hp->n_head, hp->n_kv, hp->hd, hp->n_ff };
    uint64_t h = hash(0xcbf29ce484222325, shape, sizeof shape);
    float base = 10000; /* the file's, whatever the caller asks for */
    char piece[64];

    TRY(cb_hp_float(m, "rope.freq_base", OPTIONAL, 1, 1e12, &base));
    h = hash(h, m->arch->name, strlen(m->arch->name));
    h = hash(h, &base, sizeof base);
    for (int32_t i = 0; i < cb_tok_n_vocab(m->tok); i++) {
        const int n = cb_tok_piece(m->tok, i, 1, piece, sizeof piece);
        h = hash(h, &n, sizeof n);
        h = hash(h, piece, (size_t)n < sizeof piece ? (size_t)n : sizeof piece);
    }
    *out = h ? h : 1;
    return CB_OK;
}

/* Prompts and generated tokens have the same team, of which some threads may sleep. */
static int threads_in_all(const struct cb_model_params *p)
{
    const int decode = p->n_threads || !p->n_threads_batch ? p->n_threads : cb_cpus_default();

    return decode > p->n_threads_batch ? decode : p->n_threads_batch;
}

static void share_threads(struct cb_model *m, const struct cb_model_params *p)
{
    const int all = cb_par_threads(m->dev->par);
    const int decode = p->n_threads || !p->n_threads_batch ? p->n_threads : cb_cpus_default();

    m->n_threads = decode && decode < all ? decode : all;
    m->n_threads_batch = p->n_threads_batch && p->n_threads_batch < all ? p->n_threads_batch : all;
}

/* Experts that a token does not take count as well. */
static int pick_device(struct cb_model *m, const struct team_params *team, struct device_want *want,
                       char name[32])
{
    const struct device_load load = { 2.0 * (double)m->n_params, (double)m->weights_bytes,
                                      m->hp.n_layer };
    char why[512];

    TRY(cb_device_pick(&load, team, want, name, why, sizeof why));
    if (!strcmp(name, "cpu"))
        want->working_set = 0, want->stream_kv = 0;
    cb_model_log(m, CB_LOG_NOTE, "device auto: %s: %s", name, why);
    return CB_OK;
}

static int open_device(struct cb_model *m, const struct cb_model_params *p)
{
    const int is_auto = p->device && !strcmp(p->device, "auto");
    const int mode = cb_numa_mode(p->numa);
    const struct team_params team = { threads_in_all(p), mode > 0 ? (enum numa_mode)mode : NUMA_OFF,
                                      p->pin };
    struct device_want want = { .isa = p->isa,
                                .matmul = p->matmul,
                                .working_set = p->working_set,
                                .stream_kv = p->stream_kv,
                                .cache_dir = p->kernel_cache,
                                .log = p->log,
                                .log_arg = p->log_arg };
    char name[32];

    if (mode < 0)
        return cb_fail(CB_EARG, "numa: '%s' is not off, distribute or isolate", p->numa);
    if (p->n_threads < 0 || p->n_threads_batch < 0)
        return cb_fail(CB_EARG, "threads: %d, of prompts %d: out of range", p->n_threads,
                       p->n_threads_batch);
    if (is_auto)
        TRY(pick_device(m, &team, &want, name));
    TRY(cb_device_open_team(is_auto ? name : p->device, &team, &want, &m->dev));
    if (*cb_par_note(m->dev->par))
        cb_model_log(m, CB_LOG_NOTE, "%s", cb_par_note(m->dev->par));
    m->stream_kv = want.stream_kv;
    share_threads(m, p);
    cb_model_log(m, CB_LOG_DETAIL, "device %s: %s, %d threads", m->dev->name, m->dev->isa,
                 m->n_threads);
    if (m->n_threads_batch != m->n_threads)
        cb_model_log(m, CB_LOG_DETAIL, "%d threads read prompts", m->n_threads_batch);
    return CB_OK;
}

static int set_params(struct cb_model *m, const struct cb_model_params *p)
{
    snprintf(m->matmul, sizeof m->matmul, "%s", p->matmul ? p->matmul : "own");
    m->rows_only = p->rows_only;
    m->small_pages = p->small_pages;
    m->draft_mtp = p->draft_mtp;
    m->log = p->log;
    m->log_arg = p->log_arg;
    if (!p->preset_dir)
        return CB_OK;
    m->preset_dir = strdup(p->preset_dir);
    return m->preset_dir ? CB_OK : cb_fail(CB_ENOMEM, "out of memory");
}

/* A template that is not understood is no failure: a built-in form may fit. */
static void note_template(const struct cb_model *m)
{
    const char *form = cb_chat_default(m->gguf);

    if (cb_chat_check_own(m->gguf) < 0)
        cb_model_log(m, CB_LOG_NOTE, "the model's own %s; conversations are written %s%s",
                     cb_error(), form ? "in the built-in form " : "only in a form that is named",
                     form ? form : "");
}

/* Sessions make the tables for their contexts. */
static int check_rope(struct cb_model *m)
{
    struct rope rope[ROPE_TABLES] = { { 0 } };
    const int err = cb_model_rope(m, m->hp.n_ctx_train, rope);

    for (int i = 0; i < ROPE_TABLES; i++)
        cb_rope_close(&rope[i]);
    return err ? cb_fail_in(err, cb_gguf_path(m->gguf)) : CB_OK;
}

/* Adapters, and threads that read the memory of their own NUMA node, want copies of their own. */
static int deal_out(struct cb_model *m, const struct cb_model_params *p, struct ranks *team,
                    enum model_deal deal)
{
    const int own = m->max_rank || cb_numa_mode(p->numa) != NUMA_OFF;
    uint64_t of;

    if (deal == DEAL_ROWS)
        return cb_split_rows_open(m->dev, team);
    if (deal == DEAL_LAYERS)
        return cb_layer_share_open(m, team);
    of = hash(cb_gguf_samples(m->gguf), m->dev->isa, strlen(m->dev->isa));
    of = hash(of, m->matmul, strlen(m->matmul));
    return cb_node_weights_open(m->dev, team, own ? 0 : of | 1);
}

static int open_steps(struct cb_model *m, const char *path, const struct cb_model_params *p,
                      struct ranks *team, enum model_deal deal)
{
    if (p->draft_mtp < 0 || p->draft_mtp > MOST_DRAFT)
        return cb_fail(CB_EARG, "drafts of %d tokens by the model's own head: not 0 to %d",
                       p->draft_mtp, MOST_DRAFT);
    TRY(set_params(m, p));
    TRY(cb_gguf_open(path, &m->gguf));
    if (!p->vocab_only)
        TRY(cb_hparams_read(m, p));
    TRY(read_name(m));
    TRY(cb_tok_open_as(m->gguf, p->pre_tokenizer, &m->tok));
    note_template(m);
    m->hp.n_vocab = cb_tok_n_vocab(m->tok);
    if (p->vocab_only)
        return CB_OK;
    TRY(cb_weights_bind(m));
    TRY(cb_trained_blocks_read(m->gguf, m->hp.n_kv, cb_model_policy_layers(m), &m->blocks));
    TRY(cb_adapters_open(m, p));
    TRY(check_rope(m));
    TRY(fingerprint(m, &m->fingerprint));
    TRY(open_device(m, p));
    if (team)
        TRY(deal_out(m, p, team, deal));
    TRY(load_all(m));
    return cb_node_weights_done(m->dev);
}

struct cb_model_params cb_model_defaults(void)
{
    return (struct cb_model_params){ 0 };
}

int cb_model_open(const char *path, const struct cb_model_params *params, cb_model **out)
{
    return cb_model_open_over(path, params, NULL, DEAL_NOTHING, out);
}

int cb_model_open_over(const char *path, const struct cb_model_params *params, struct ranks *team,
                       enum model_deal deal, cb_model **out)
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
    err = open_steps(m, path, params ? params : &none, team, deal);
    if (err) {
        cb_model_close(m);
        return err;
    }
    *out = m;
    return CB_OK;
}

static void unload_layers(struct cb_model *m)
{
    struct weight *w;

    for (int i = 0; m->mtp && (w = cb_mtp_weight(m->mtp, i)); i++)
        unload(m, w);
    for (int i = 0; m->assistant && (w = cb_assistant_weight(m->assistant, i)); i++)
        unload(m, w);
    for (int l = 0; m->layer && l < m->hp.n_layer + (m->mtp != NULL); l++)
        for (int i = 0; (w = cb_weights_at(&m->layer[l], i, m->hp.moe.n_expert)); i++)
            unload(m, w);
}

void cb_model_close(cb_model *m)
{
    if (!m || (m->dev && cb_device_lock(m->dev)))
        return;
    if (m->dev) {
        unload_layers(m);
        cb_head_prune_free(m->dev, m->head_prune);
        unload(m, &m->output);
        cb_device_unlock(m->dev);
    }
    cb_layer_share_close(m);
    cb_split_rows_close(m->dev);
    cb_node_weights_close(m->dev);
    cb_device_close(m->dev);
    cb_token_trie_free(m->token_trie);
    cb_tok_close(m->tok);
    cb_adapters_close(m);
    cb_gguf_close(m->gguf);
    cb_mtp_close(m);
    cb_weights_free(m);
    cb_page_guard_close(&m->guard);
    free(m->name);
    cb_trained_blocks_free(&m->blocks);
    free(m->preset_dir);
    free(m);
}

int cb_model_page_lost(cb_model *m, const void *address)
{
    return cb_page_guard_lost(&m->guard, address);
}
