/* SPDX-License-Identifier: MIT */
/* forward.c - the forward pass, from tokens to logits. A prompt goes layer by layer: all its chunks
 * go through one layer before the next one starts, so a policy can compact a layer as soon as it is
 * done, and the peak is one full layer plus the compacted ones. Tokens of several sessions go
 * through the layers together: weights are read once for all, attention is each session's own. */
#include <string.h>

#include "alternating.h"
#include "attention/attend.h"
#include "base/err.h"
#include "base/ints.h"
#include "expanded_latents.h"
#include "in_step.h"
#include "layer_ahead.h"
#include "layer_pass.h"
#include "layer_ring.h"
#include "logits.h"
#include "model/health.h"
#include "model/mtp_head.h"
#include "norm_rows.h"
#include "product.h"
#include "prompt_repeat.h"
#include "rows.h"
#include "session.h"
#include "streams.h"

/* Token ids -> w.x[n][n_embd]. Several streams are as many copies of each embedding, or made of it.
 */
static void embed(struct cb_session *s, const int32_t *tokens, int n)
{
    const size_t ne = (size_t)s->model->hp.n_embd, row = cb_stream_row(s);
    const float a = s->model->hp.embd_scale;
    const int n_stream = s->model->hp.n_stream, altup = s->model->hp.altup;
    const int step = s->w.part || n_stream > 1 ? s->chunk : n; /* at once */

    for (int i = 0; i < n; i += step) {
        const int m = min_int(step, n - i);
        float *x = s->w.x + (size_t)i * row, *to = n_stream > 1 ? s->w.norm : x;
        s->dev->ops->get_rows(s->dev, &s->model->embd, tokens + i, m, to);
        if (a != 1)
            s->dev->ops->scale(s->dev, to, a, 0, (size_t)m * ne);
        for (int j = 0; n_stream > 1 && !altup && j < n_stream; j++)
            cb_device_copy_rows(s->dev, x + (size_t)j * ne, row * sizeof *x, to, ne * sizeof *x,
                                ne * sizeof *x, m);
        if (altup)
            cb_alternating_begin(s, to, m, s->bank.decoding ? s->act_bits : 0, x);
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

/* cos and sin of n positions from pos0 on, for rows row.. of the work space of s */
static void rotations(struct cb_session *s, const struct rope *rope, int row, int pos0, int n)
{
    for (int i = 0; i < ROPE_TABLES; i++)
        if (rope[i].inv_freq)
            cb_rope_table(&rope[i], pos0, n, s->w.cs[i] + (size_t)row * (size_t)rope[i].n_rot);
}

/* ---- a feed of one session, a step at a time ---- */

/* Asks the caller whether to continue. */
static int report(const struct cb_prefill *how, int64_t done, int64_t total)
{
    if (how && how->progress && how->progress(how->progress_arg, done, total))
        return cb_fail(CB_ECANCEL, "prefill: stopped");
    return CB_OK;
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
    else if (cb_ring_embeds(s))
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
    const int n = s->bank.n_feed, wanted = cb_rows_wanted(s, how);

    cb_expanded_close(s);
    if (s->model->mtp_of) { /* the drafter looks at its state */
        TRY(cb_device_wait(s->dev));
        fed(s, n);
        return CB_OK;
    }
    if (s->attention.split)
        TRY(cb_logits_fetch(s, how));
    TRY(cb_ring_give(s, s->w.x, n, wanted));
    if (wanted && cb_in_step_reads_logits(s))
        TRY(cb_logits_give(s, s->w.x + (size_t)(s->next.n_tok - 1) * cb_stream_row(s), how));
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
                      { 0 },
                      cb_rows_unread(s, how, l, i, m) };

    for (int t = 0; t < ROPE_TABLES; t++)
        r.cs[t] = s->w.cs[t] ? s->w.cs[t] + (size_t)i * (size_t)s->rope[t].n_rot : NULL;
    if (!i && !l)
        TRY(cb_ring_take(s, s->w.x, n));
    if (!i)
        cb_layer_ahead(s, l, m);
    carry_rows(s, 1, l, i, m, n_feed);
    TRY(cb_layer_pass(&r, l));
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

/* Logits that follow rows x[n] -> w.batch_logits */
static int batch_logits(struct cb_session *s, const float *x, int n)
{
    if (!cb_in_step_reads_logits(s))
        return cb_device_wait(s->dev);
    TRY(cb_logits_of(s, x, n, s->act_bits, s->w.batch_logits));
    TRY(cb_device_wait(s->dev));
    return cb_logits_check(s, s->w.batch_logits, (size_t)n * (size_t)s->model->hp.n_vocab);
}

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
                            { w->cs[0], w->cs[1] },
                            0 };

    if (cb_ring_embeds(s[0]))
        embed(s[0], tokens, n);
    TRY(cb_ring_take(s[0], r.x, n));
    carry_rows(s[0], 1, 0, 0, n, n);
    for (int i = 0; i < n; i++) {
        w->batch[i] = &s[i]->attention;
        rotations(s[0], s[i]->rope, i, s[i]->bank.n_seen, 1);
        s[i]->bank.read_bytes = 0;
        s[i]->bank.n_feed = 1;
    }
    for (int l = 0; l < hp->n_layer; l++) {
        TRY(cb_layer_pass(&r, l));
        for (int i = 0; i < n; i++)
            TRY(cb_attend_end(&s[i]->attention, l));
    }
    TRY(cb_ring_give(s[0], r.x, n, n));
    TRY(batch_logits(s[0], r.x, n));
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
                            { w->cs[0], w->cs[1] },
                            0 };

    cb_forward_begin(s, tokens, n);
    if (n > 1)
        cb_draft_rows_begin(&s->attention, n, 1);
    TRY(cb_ring_take(s, r.x, n));
    carry_rows(s, 1, 0, 0, n, n);
    s->bank.n_feed = 1; /* each token is a feed of its own */
    for (int l = 0; l < hp->n_layer; l++)
        TRY(cb_layer_pass(&r, l));
    TRY(cb_ring_give(s, r.x, n, n));
    TRY(batch_logits(s, r.x, n));
    memcpy(w->logits, w->batch_logits + (size_t)(n - 1) * n_vocab, n_vocab * sizeof *w->logits);
    s->bank.read_bytes /= (uint64_t)n; /* a token's */
    cb_session_passed(s, r.x, pos0, n);
    fed(s, n);
    return CB_OK;
}
