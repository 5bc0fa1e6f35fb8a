/* SPDX-License-Identifier: MIT */
/* session.c - opens, plans, feeds and closes a timeline. */
#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "bank/mapped_files.h"
#include "base/array.h"
#include "base/err.h"
#include "base/ints.h"
#include "in_step.h"
#include "prompt_repeat.h"
#include "snapshot.h"

enum {
    DEFAULT_CHUNK = 512,
    MAX_CHUNK = 1 << 16,
    MAX_CTX = 1 << 30 /* sizes in blocks and pages are rounded up in int */
};

/* ---- work space ---- */

/* What the host reads or writes */
static int grow(float **p, size_t n, uint64_t *bytes)
{
    free(*p);
    *p = cb_alloc_aligned(n, sizeof **p);
    *bytes += (uint64_t)n * sizeof **p;
    return *p ? CB_OK : CB_ENOMEM;
}

/* What ops alone read and write: it lies in the device's memory. */
static int grow_on(struct device *d, float **p, size_t n, uint64_t *bytes)
{
    cb_device_free(d, *p);
    *p = cb_device_alloc(d, n, sizeof **p);
    *bytes += (uint64_t)n * sizeof **p;
    return *p ? CB_OK : CB_ENOMEM;
}

int cb_session_check_callback(const struct cb_session *s)
{
    return s->busy ? cb_fail(CB_EARG, "called from a callback: the session is in use") : CB_OK;
}

int cb_session_check_idle(const struct cb_session *s)
{
    TRY(cb_session_check_callback(s));
    return s->bank.n_feed ? cb_fail(CB_EARG, "a prompt is in progress: finish or cancel it first")
                          : CB_OK;
}

int cb_session_check_files(const struct cb_session *s)
{
    return cb_mapped_files_check(s->mapped);
}

int cb_session_extends(const struct cb_session *s)
{
    return !cb_bank_has_kivi(&s->bank) && cb_attention_extends(&s->attention);
}

int cb_session_only_forks(const struct cb_session *s)
{
    return !cb_bank_has_kivi(&s->bank) && cb_attention_only_forks(&s->attention);
}

/* Cutting a prepacked block would round its rows once more. */
int cb_session_prefill_is_exact(const struct cb_session *s, int n)
{
    return n == s->n_prefill_exact ||
           (n < s->n_prefill_exact && n % KV_PREPACK == 0 && cb_session_extends(s));
}

/* Are layers told which tokens are fed? */
static int wants_ids(const struct cb_model *m)
{
    return m->hp.n_input > 0 || m->hp.moe.n_listed > 0 || cb_stream_ngrams(m);
}

size_t cb_session_tok_floats(const struct cb_session *s)
{
    size_t n = cb_stream_row(s) + (size_t)cb_attention_is_partial(&s->attention) +
               (size_t)wants_ids(s->model);

    for (int i = 0; i < ROPE_TABLES; i++) /* n_rot 0: nothing rotates by the table */
        n += (size_t)s->rope[i].n_rot;
    return n;
}

/* Bytes of n rows of the residual stream */
static uint64_t rows_bytes(const struct cb_session *s, int n)
{
    return (uint64_t)n * (uint64_t)cb_stream_row(s) * sizeof(float);
}

/* Bytes of the residual stream in the device's memory */
static uint64_t stream_bytes(const struct cb_session *s)
{
    return rows_bytes(s, s->w.part ? s->chunk : s->w.cap_tok);
}

/* 1: n rows of the residual stream fit into the device's memory and displace nothing */
static int stream_fits(const struct cb_session *s, int n)
{
    const uint64_t spare = cb_device_spare(s->dev), has = stream_bytes(s);
    return n <= s->chunk || spare == UINT64_MAX || rows_bytes(s, n) <= spare + has;
}

int64_t cb_session_work_grows(const struct cb_session *s, int n)
{
    return n <= s->w.cap_tok ? 0
                             : (int64_t)rows_bytes(s, stream_fits(s, n) ? n : s->chunk) -
                                   (int64_t)stream_bytes(s);
}

/* x gets room for n rows, in the device's memory where they fit. */
static int grow_stream(struct cb_session *s, int n, int fits)
{
    const size_t row = cb_stream_row(s);
    struct work *w = &s->w;
    uint64_t unused = 0;

    if (w->part)
        free(w->x);
    else
        cb_device_free(s->dev, w->x);
    cb_device_free(s->dev, w->part);
    w->x = w->part = NULL;
    if (fits)
        return grow_on(s->dev, &w->x, (size_t)n * row, &unused);
    TRY(grow_on(s->dev, &w->part, (size_t)s->chunk * row, &unused));
    return grow(&w->x, (size_t)n * row, &unused);
}

static int fit(struct cb_session *s, int n)
{
    const int fits = stream_fits(s, n);
    struct work *w = &s->w;
    uint64_t unused = 0;

    w->bytes -= (uint64_t)w->cap_tok * cb_session_tok_floats(s) * sizeof(float);
    w->cap_tok = 0;
    TRY(grow_stream(s, n, fits));
    for (int i = 0; i < ROPE_TABLES; i++)
        if (s->rope[i].inv_freq)
            TRY(grow(&w->cs[i], (size_t)n * (size_t)s->rope[i].n_rot, &unused));
    if (wants_ids(s->model)) {
        free(w->id);
        w->id = cb_calloc((size_t)n, sizeof *w->id);
        if (!w->id)
            return CB_ENOMEM;
    }
    if (cb_attention_is_partial(&s->attention)) {
        free(w->pos);
        w->pos = cb_calloc((size_t)n, sizeof *w->pos);
        if (!w->pos)
            return CB_ENOMEM;
    }
    w->cap_tok = n;
    w->bytes += (uint64_t)n * cb_session_tok_floats(s) * sizeof(float);
    return CB_OK;
}

int cb_session_work_fit(struct cb_session *s, int n)
{
    int err;

    if (n <= s->w.cap_tok)
        return CB_OK;
    TRY(cb_device_lock(s->dev)); /* another session may compute */
    err = fit(s, n);
    cb_device_unlock(s->dev);
    return err;
}

int cb_session_repeats(const struct cb_session *s, int n)
{
    return s->bank.n_seen ? 0 : cb_prompt_repeat_room(s->repeat, n);
}

int cb_session_work_fit_batch(struct cb_session *s, int n)
{
    struct work *w = &s->w;
    const uint64_t had = (uint64_t)w->cap_batch * (uint64_t)s->model->hp.n_vocab * sizeof(float);
    struct attention **batch;

    TRY(cb_session_work_fit(s, n));
    if (n <= w->cap_batch)
        return CB_OK;
    if (!(batch = cb_realloc(w->batch, (size_t)n, sizeof *batch)))
        return CB_ENOMEM;
    w->batch = batch;
    w->cap_batch = 0;
    w->bytes -= had;
    TRY(grow(&w->batch_logits, (size_t)n * (size_t)s->model->hp.n_vocab, &w->bytes));
    w->cap_batch = n;
    return CB_OK;
}

int cb_session_work_fit_draft(struct cb_session *s, int n)
{
    TRY(cb_session_work_fit_batch(s, n));
    return cb_attention_fit_draft(&s->attention, n);
}

int cb_session_fit_tokens(struct cb_session *s, int n)
{
    size_t cap = s->cap_token;

    TRY(cb_grow(&s->token, &cap, n, sizeof *s->token));
    return cb_grow(&s->decoded, &s->cap_token, n, sizeof *s->decoded);
}

int cb_session_note_tokens(struct cb_session *s, const int32_t *tokens, int n)
{
    TRY(cb_session_fit_tokens(s, s->bank.n_seen + n));
    memcpy(s->token + s->bank.n_seen, tokens, (size_t)n * sizeof *tokens);
    return CB_OK;
}

/* Of attention over compressed rows */
static int compress_work(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    const struct compress_params *p = &hp->compress;
    const size_t c = (size_t)s->chunk;
    struct work *w = &s->w;
    int made = 0;

    if (!p->n_group)
        return CB_OK;
    TRY(grow_on(s->dev, &w->latent, c * (size_t)max_int(p->low, hp->n_head / p->n_group * hp->hd),
                &w->bytes));
    for (int l = 0; l < hp->n_layer; l++)
        made = max_int(made, cb_entry_columns(s->model->layer[l].compressed).n);
    if (made)
        TRY(grow(&w->made, c * (size_t)made, &w->bytes));
    return grow(&w->back, c * (size_t)hp->n_rot, &w->bytes);
}

static int work_open(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    struct work *w = &s->w;
    const size_t c = (size_t)s->chunk, nq = (size_t)hp->n_head * (size_t)hp->hd_max;
    const size_t nkv = (size_t)hp->kv_max;
    const size_t grouped = (size_t)hp->compress.n_group * (size_t)hp->compress.group_low;

    TRY(grow_on(s->dev, &w->norm, c * (size_t)hp->n_embd, &w->bytes));
    TRY(grow_on(s->dev, &w->qkv, c * max_size(nq + 2 * nkv, grouped), &w->bytes));
    TRY(grow_on(s->dev, &w->att, c * nq, &w->bytes));
    TRY(grow_on(s->dev, &w->gate, c * (size_t)hp->n_ff_max, &w->bytes));
    TRY(grow_on(s->dev, &w->up, c * (size_t)hp->n_ff_max, &w->bytes));
    if (hp->latent.rank)
        TRY(grow_on(s->dev, &w->latent, c * (size_t)max_int(hp->latent.rank, hp->latent.low),
                    &w->bytes));
    if (hp->selector.n_head)
        TRY(grow_on(s->dev, &w->index, c * cb_selector_row(hp), &w->bytes));
    TRY(compress_work(s));
    if ((hp->moe.limited || (s->model->arch->has & (HAS_XIELU | HAS_ALTUP))) && s->dev->ops->memory)
        TRY(grow(&w->limited, 2 * c * (size_t)hp->n_ff_max, &w->bytes));
    if (s->model->max_rank)
        TRY(grow_on(s->dev, &w->low, c * (size_t)s->model->max_rank, &w->bytes));
    if (hp->resid_scale != 1 || s->model->arch->norms != NORMS_BEFORE || hp->moe.n_expert ||
        hp->n_stream > 1)
        TRY(grow_on(s->dev, &w->add, c * (size_t)hp->n_embd, &w->bytes));
    if (s->model->mtp_of)
        TRY(grow_on(s->dev, &w->join, 2 * c * (size_t)hp->n_embd, &w->bytes));
    if (hp->moe.beside)
        TRY(grow_on(s->dev, &w->beside, c * (size_t)hp->n_embd, &w->bytes));
    if (hp->n_input)
        TRY(grow(&w->told, c * (size_t)hp->n_input, &w->bytes));
    if (s->model->arch->has & HAS_GATE)
        TRY(grow_on(s->dev, &w->query_gate, 3 * c * nq, &w->bytes));
    TRY(cb_moe_work_open(&w->moe, s->dev, hp, s->chunk, &w->bytes));
    TRY(cb_stream_work_open(&w->streams, s->model, s->chunk, &w->bytes));
    return grow(&w->logits, (size_t)hp->n_vocab, &w->bytes);
}

static void work_close(struct device *d, struct work *w)
{
    float *const on[] = { w->part ? w->part : w->x,
                          w->norm,
                          w->qkv,
                          w->att,
                          w->latent,
                          w->index,
                          w->gate,
                          w->up,
                          w->low,
                          w->add,
                          w->beside,
                          w->join,
                          w->query_gate };

    if (w->part)
        free(w->x);
    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        cb_device_free(d, on[i]);
    for (int i = 0; i < ROPE_TABLES; i++)
        free(w->cs[i]);
    free(w->pos);
    free(w->id);
    free(w->told);
    free(w->limited);
    free(w->back);
    free(w->made);
    cb_moe_work_close(&w->moe, d);
    cb_stream_work_close(&w->streams, d);
    free(w->logits);
    free(w->batch_logits);
    free(w->batch);
}

/* ---- open ---- */

/* Where no layer has keys, there is nothing to choose from. */
static int check_keys(const struct cb_session *s, const struct shape *sh)
{
    const char *prefill = s->params.prefill;

    if (sh->n_layer)
        return CB_OK;
    if (strcmp(s->policy->m->name, "full"))
        return cb_fail(CB_EUNSUPPORTED, "policy %s: no layer of the model has keys",
                       s->policy->m->name);
    return !prefill || !strcmp(prefill, "dense")
               ? CB_OK
               : cb_fail(CB_EUNSUPPORTED, "prefill %s: no layer of the model has keys", prefill);
}

static int open_policy(struct cb_session *s, const struct cb_session_params *p,
                       const struct method *m, void *arg)
{
    const struct hparams *hp = &s->model->hp;
    const struct shape sh = { .n_layer = cb_model_policy_layers(s->model),
                              .n_head = hp->n_head,
                              .n_kv = hp->n_kv,
                              .hd = hp->hd,
                              .n_ctx = s->bank.n_ctx,
                              .one_row = s->bank.one_row,
                              .at = s->model->global,
                              .n_model_layer = hp->n_layer,
                              .model = s->model->fingerprint,
                              .preset_dir = s->model->preset_dir,
                              .trained_blocks = s->model->blocks.start,
                              .trained_sinks = s->model->blocks.sinks,
                              .trained_recent = s->model->blocks.recent,
                              .selects = cb_model_selects(s->model),
                              .guest = p->guest };

    if (m)
        TRY(cb_policy_open_as(m, arg, &sh, &s->policy));
    else
        TRY(cb_policy_open(p->policy, &sh, &s->policy));
    TRY(check_keys(s, &sh));
    return cb_policy_plan(s->policy, &s->bank);
}

static int open_attention(struct cb_session *s, const char *prefill)
{
    s->attention = (struct attention){ .model = s->model,
                                       .dev = s->dev,
                                       .bank = &s->bank,
                                       .policy = s->policy,
                                       .rope = s->rope,
                                       .chunk = s->chunk,
                                       .max_draft = 1 };
    return cb_attention_open(&s->attention, prefill);
}

static int reserve_device(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    const int nq = hp->n_head * hp->hd_max;
    const struct ngrams *grams = cb_stream_ngrams(s->model);
    int max_in = max_int(hp->n_ff_max, hp->n_stream * hp->n_embd);
    int64_t bytes;

    max_in = max_int(max_int(max_in, nq), max_int(hp->latent.low, hp->compress.low));
    max_in = max_int(max_in, hp->compress.n_group * hp->compress.group_low);
    max_in = max_int(max_in, hp->mix.n_head * hp->mix.dv);
    max_in = max_int(max_in, hp->stream_rank);
    max_in = grams ? max_int(max_in, grams->n_head * grams->dim) : max_in;
    max_in = s->model->mtp_of ? max_int(max_in, 2 * hp->n_embd) : max_in;
    bytes = s->dev->ops->reserve(
        s->dev, s->chunk, max_in, hp->n_vocab > max_in ? hp->n_vocab : max_in,
        max_int(hp->n_head, max_int(hp->selector.n_head, hp->compress.n_index)),
        max_int(hp->hd_max, max_int(hp->selector.hd, hp->compress.index_hd)), s->bank.n_ctx);
    if (bytes < 0)
        return (int)bytes;
    s->device_bytes = (uint64_t)bytes;
    return CB_OK;
}

/* What has a part on the device; call with it locked, since other sessions may compute. */
static int open_on_device(struct cb_session *s, const struct cb_session_params *p)
{
    /* methods that merge need one column more, for the length of each key */
    TRY(cb_bank_open(&s->bank, p->type_k, p->type_v,
                     s->policy->slot_floats + s->policy->m->merges));
    TRY(open_attention(s, p->prefill));
    TRY(work_open(s));
    return reserve_device(s);
}

static int open_steps(struct cb_session *s, const struct cb_session_params *p,
                      const struct method *m, void *arg)
{
    const struct hparams *hp = &s->model->hp;
    int err;

    if (p->n_ctx < 0 || p->n_ctx > MAX_CTX || p->chunk < 0 || p->chunk > MAX_CHUNK)
        return cb_fail(CB_EARG, "context %d, chunk %d: out of range", p->n_ctx, p->chunk);
    if (p->act_bits && p->act_bits != 8 && p->act_bits != 16)
        return cb_fail(CB_EARG, "activations of %d bits: only 8 and 16 are possible", p->act_bits);
    s->act_bits = p->act_bits ? p->act_bits : 16;
    s->bank = (struct bank){ .dev = s->dev,
                             .rows_only = s->model->rows_only,
                             .small_pages = s->model->small_pages,
                             .n_layer = hp->n_layer,
                             .one_row = hp->one_row,
                             .checkpoint_bytes = p->checkpoint_bytes,
                             .n_kv = hp->n_kv,
                             .hd = hp->hd,
                             .layer = s->model->layer,
                             .n_ctx = p->n_ctx ? p->n_ctx : hp->n_ctx_train };
    s->chunk = p->chunk ? p->chunk : DEFAULT_CHUNK;
    if (s->chunk > s->bank.n_ctx)
        s->chunk = s->bank.n_ctx;
    TRY(cb_model_rope(s->model, s->bank.n_ctx, s->rope));
    TRY(open_policy(s, p, m, arg));
    s->n_ctx = s->bank.n_ctx;
    TRY(cb_prompt_repeat_new(s->model, s->policy, s->n_ctx, &s->repeat));
    s->bank.n_ctx += cb_prompt_repeat_room(s->repeat, s->n_ctx);
    TRY(cb_device_lock(s->dev));
    err = open_on_device(s, p);
    cb_device_unlock(s->dev);
    return err;
}

struct cb_session_params cb_session_defaults(void)
{
    return (struct cb_session_params){ 0 };
}

struct cb_prefill cb_prefill_defaults(void)
{
    return (struct cb_prefill){ 0 };
}

int cb_session_open(cb_model *model, const struct cb_session_params *params, cb_session **out)
{
    TRY(cb_session_open_as(model, params, NULL, NULL, out));
    if (*(*out)->policy->note)
        cb_model_log(model, CB_LOG_NOTE, "%s", (*out)->policy->note);
    return CB_OK;
}

/* The addresses of the texts in params */
static void texts_of(struct cb_session_params *p, const char **text[4])
{
    text[0] = &p->type_k;
    text[1] = &p->type_v;
    text[2] = &p->policy;
    text[3] = &p->prefill;
}

static int own_params(struct cb_session *s, const struct cb_session_params *p)
{
    const char **text[4];
    int err = CB_OK;

    s->params = *p;
    if (!p->policy)
        s->params.policy = cb_model_policy(s->model);
    texts_of(&s->params, text);
    for (int i = 0; i < 4; i++) {
        const char *given = *text[i];
        *text[i] = given ? strdup(given) : NULL;
        if (given && !*text[i])
            err = cb_fail(CB_ENOMEM, "out of memory");
    }
    return err;
}

static void free_params(struct cb_session_params *p)
{
    const char **text[4];

    texts_of(p, text);
    for (int i = 0; i < 4; i++)
        free((void *)(uintptr_t)*text[i]); /* own_params' strdup */
}

int cb_session_open_as(cb_model *model, const struct cb_session_params *params,
                       const struct method *m, void *arg, cb_session **out)
{
    const struct cb_session_params defaults = cb_session_defaults();
    struct cb_session *s;
    int err;

    *out = NULL;
    if (!model->dev)
        return cb_fail(CB_EARG, "session: the model was opened for its vocabulary alone");
    s = cb_calloc(1, sizeof *s);
    if (!s)
        return CB_ENOMEM;
    s->model = model;
    s->dev = model->dev;
    err = cb_in_step_begin_open(model, params ? params : &defaults, m);
    if (err) {
        free(s);
        return err;
    }
    err = own_params(s, params ? params : &defaults);
    if (!err)
        err = open_steps(s, &s->params, m, arg);
    err = cb_in_step_end_open(model, s, err);
    if (err) {
        cb_session_close(s);
        return err;
    }
    *out = s;
    return CB_OK;
}

static void close_here(cb_session *s)
{
    int locked;

    /* memory of the device's own: others may compute; not locked: in a callback of theirs */
    locked = s->dev->ops->memory && !cb_device_lock(s->dev);
    if (s->follower)
        s->follower->close(s->follower);
    cb_snapshot_drop(&s->snapshot);
    cb_prompt_repeat_free(s->repeat);
    cb_attention_close(&s->attention);
    cb_policy_close(s->policy);
    cb_mapped_files_close(s->mapped);
    cb_bank_close(&s->bank);
    work_close(s->dev, &s->w);
    if (locked)
        cb_device_unlock(s->dev);
    free(s->token);
    free(s->decoded);
    for (int i = 0; i < ROPE_TABLES; i++)
        cb_rope_close(&s->rope[i]);
    free_params(&s->params);
    free(s);
}

void cb_session_close(cb_session *s)
{
    struct in_step *x;
    int told;

    if (!s || s->busy) /* called from a callback */
        return;
    x = s->in_step;
    told = !cb_in_step_begin(s, VERB_CLOSE, NULL, 0);
    if (told)
        cb_in_step_forget(s);
    close_here(s);
    if (told)
        cb_in_step_end(x, CB_OK);
}

void cb_session_forget(struct cb_session *s)
{
    cb_snapshot_drop(&s->snapshot);
    cb_mapped_files_drop(&s->mapped);
    cb_bank_cut(&s->bank, 0);
    cb_session_went_back(s, 0);
    cb_attention_clear(&s->attention);
    s->bank.pairs_read = s->bank.pairs_all = 0;
    s->n_prefill_exact = 0;
    s->prune_stats = (struct head_prune_stats){ 0 };
}

int cb_session_want_top(cb_session *s, int k)
{
    int err;

    if (k < 0)
        return cb_fail(CB_EARG, "the %d largest logits", k);
    TRY(cb_device_lock(s->dev));
    err = k ? cb_model_prune_head(s->model) : CB_OK;
    s->top = err ? s->top : k;
    cb_device_unlock(s->dev);
    return err;
}

const float *cb_session_logits(const cb_session *s)
{
    return s->w.logits;
}

int cb_session_n_ctx(const cb_session *s)
{
    return s->n_ctx;
}

int cb_session_len(const cb_session *s)
{
    return s->bank.n_seen;
}

const int32_t *cb_session_tokens(const cb_session *s)
{
    return s->token;
}

const char *cb_session_note(const cb_session *s)
{
    return s->policy->note;
}
