/* SPDX-License-Identifier: MIT */
/* session.c - the work space of a timeline, and what can be asked of it. */
#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "bank/mapped_files.h"
#include "base/array.h"
#include "base/err.h"
#include "base/ints.h"
#include "model/assistant.h"
#include "prompt_repeat.h"
#include "snapshot.h"

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

int cb_session_expands(const struct cb_session *s)
{
    return s->params.expand_latents && s->model->hp.latent.rank && !s->in_step;
}

/* Rows of a prepacked block that is cut come back rounded, but with the codes that they had, and
 * codes are all that attention reads of them. The exception: until a block is prepacked, a KV head
 * that few query heads share reads rows as they are. */
int cb_session_cuts_exactly(const struct cb_session *s, int n)
{
    const int block = n / KV_PREPACK * KV_PREPACK;

    if (n == block || (block && !cb_context_split_deals_any(&s->attention)))
        return 1;
    for (int l = 0; l < s->bank.n_layer; l++)
        if (s->bank.store[l].prepacked > block)
            return 0;
    return 1;
}

int cb_session_prefill_is_exact(const struct cb_session *s, int n)
{
    return n == s->n_prefill_exact || (n < s->n_prefill_exact && cb_session_extends(s) &&
                                       !cb_session_expands(s) && cb_session_cuts_exactly(s, n));
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

/* 1: the residual streams stay in the host's memory, which blends them (stream_blend.h) */
static int streams_are_hosts(const struct cb_session *s)
{
    return s->model->hp.compress.n_group && s->dev->ops->memory;
}

/* Bytes of the residual stream in the device's memory */
static uint64_t stream_bytes(const struct cb_session *s)
{
    return rows_bytes(s, s->w.part ? s->chunk : s->w.x_host ? 0 : s->w.cap_tok);
}

/* 1: n rows of the residual stream fit into the device's memory and displace nothing */
static int stream_fits(const struct cb_session *s, int n)
{
    const uint64_t spare = cb_device_spare(s->dev), has = stream_bytes(s);
    return n <= s->chunk || spare == UINT64_MAX || rows_bytes(s, n) <= spare + has;
}

int64_t cb_session_work_grows(const struct cb_session *s, int n)
{
    return n <= s->w.cap_tok || streams_are_hosts(s)
               ? 0
               : (int64_t)rows_bytes(s, stream_fits(s, n) ? n : s->chunk) -
                     (int64_t)stream_bytes(s);
}

static void free_stream(struct device *d, struct work *w)
{
    if (w->x_host)
        free(w->x);
    else
        cb_device_free(d, w->x);
    cb_device_free(d, w->part);
    w->x = w->part = NULL;
}

/* x gets room for n rows, in the device's memory where they fit. */
static int grow_stream(struct cb_session *s, int n, int fits)
{
    const size_t row = cb_stream_row(s);
    struct work *w = &s->w;
    uint64_t unused = 0;

    free_stream(s->dev, w);
    w->x_host = !fits || streams_are_hosts(s);
    if (!w->x_host)
        return grow_on(s->dev, &w->x, (size_t)n * row, &unused);
    if (!streams_are_hosts(s))
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
        TRY(grow_on(s->dev, &w->made, c * (size_t)made, &w->bytes));
    if (made && s->dev->ops->memory)
        TRY(grow(&w->made_host, c * (size_t)made, &w->bytes));
    return grow(&w->back, c * (size_t)hp->n_rot, &w->bytes);
}

int cb_session_work_open(struct cb_session *s)
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
    if (hp->selector.n_head && s->dev->ops->memory)
        TRY(grow(&w->index_host, c * cb_selector_row(hp), &w->bytes));
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
    if (s->model->assistant)
        TRY(grow_on(s->dev, &w->join, 2 * (size_t)s->model->assistant->n_target, &w->bytes));
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

void cb_session_work_close(struct device *d, struct work *w)
{
    float *const on[] = { w->norm, w->qkv, w->att, w->latent, w->index, w->made,      w->gate,
                          w->up,   w->low, w->add, w->beside, w->join,  w->query_gate };

    free_stream(d, w);
    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        cb_device_free(d, on[i]);
    for (int i = 0; i < ROPE_TABLES; i++)
        free(w->cs[i]);
    free(w->pos);
    free(w->id);
    free(w->told);
    free(w->limited);
    free(w->back);
    free(w->made_host);
    free(w->index_host);
    cb_moe_work_close(&w->moe, d);
    cb_stream_work_close(&w->streams, d);
    free(w->logits);
    free(w->batch_logits);
    free(w->batch);
}

/* ---- what the caller sees ---- */

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
