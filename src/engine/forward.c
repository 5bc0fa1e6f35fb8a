/* SPDX-License-Identifier: MIT */
/* forward.c - the forward pass, from tokens to logits. A prompt goes layer by layer: all its chunks
 * go through one layer before the next one starts, so a policy can compact a layer as soon as it is
 * done, and the peak is one full layer plus the compacted ones. Tokens of several sessions go
 * through the layers together: weights are read once for all, attention is each session's own. */
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "attention/sparse_prefill.h"
#include "base/err.h"
#include "base/ints.h"
#include "model/head_prune.h"
#include "session.h"

/* Rows that go through a layer together: either a chunk of one session's feed, which begins at
 * position pos0 (the feed ends before pos_end), or the next token of each of n sessions. The work
 * space is the first session's. */
struct rows {
    struct cb_session *const *s; /* [n] */
    int n, n_tok;                /* n_tok == n where n > 1 */
    int pos0, pos_end;
    float *x;        /* [n_tok][n_embd] the residual stream */
    const float *cs; /* [n_tok][n_rot/2][2] */
};

/* qkv[n_tok][(n_head + 2 n_kv) * hd] -> out[n_tok][n_head * hd] */
static int attend(const struct rows *r, int l, const float *qkv, float *out)
{
    const struct hparams *hp = &r->s[0]->model->hp;
    const int nq = hp->n_head * hp->hd, nkv = hp->n_kv * hp->hd, stride = nq + 2 * nkv;

    for (int i = 0; i < r->n; i++) {
        const float *q = qkv + (size_t)i * (size_t)stride;
        struct chunk c = { l, q, q + nq, q + nq + nkv, stride, r->n_tok, r->pos0, r->pos_end };
        if (r->n > 1) {
            c.n = 1;
            c.pos0 = r->s[i]->bank.n_seen;
            c.pos_end = c.pos0 + 1;
        }
        TRY(cb_attend(&r->s[i]->attention, &c, out + (size_t)i * (size_t)nq));
    }
    return CB_OK;
}

static int layer(const struct rows *r, int l)
{
    struct cb_session *s = r->s[0];
    const struct hparams *hp = &s->model->hp;
    const struct arch *arch = s->model->arch;
    const struct layer *y = &s->model->layer[l];
    const struct ops *op = s->dev->ops;
    struct device *d = s->dev;
    struct work *w = &s->w;
    const int n = r->n_tok, ne = hp->n_embd;
    const int nq = hp->n_head * hp->hd, nkv = hp->n_kv * hp->hd, stride = nq + 2 * nkv;
    const int bits = s->bank.decoding ? s->act_bits : 0;
    float *q = w->qkv, *k = w->qkv + nq, *v = w->qkv + nq + nkv; /* columns of one row */

    /* attention */
    op->rmsnorm(d, r->x, y->attn_norm, hp->norm_eps, ne, 1, n, ne, w->norm, ne);
    op->matmul(d,
               (const struct mm[]){ { &y->q, y->q_bias, q, stride, 0, bits },
                                    { &y->k, y->k_bias, k, stride, 0, bits },
                                    { &y->v, y->v_bias, v, stride, 0, bits } },
               3, w->norm, n);
    op->rope(d, arch->rope, q, n, hp->n_head, hp->hd, stride, hp->n_rot, r->cs);
    op->rope(d, arch->rope, k, n, hp->n_kv, hp->hd, stride, hp->n_rot, r->cs);
    TRY(attend(r, l, w->qkv, w->att));
    op->matmul(d, &(const struct mm){ &y->o, y->o_bias, r->x, ne, 1, bits }, 1, w->att, n);

    /* feed-forward */
    op->rmsnorm(d, r->x, y->ffn_norm, hp->norm_eps, ne, 1, n, ne, w->norm, ne);
    op->matmul_glu(d,
                   (const struct mm[]){ { &y->gate, NULL, w->gate, hp->n_ff, 0, bits },
                                        { &y->up, NULL, w->up, hp->n_ff, 0, bits } },
                   arch->act, w->norm, n);
    op->matmul(d, &(const struct mm){ &y->down, NULL, r->x, ne, 1, bits }, 1, w->gate, n);
    return CB_OK;
}

/* x[n][n_embd] -> logits[n][n_vocab] */
static void head(struct cb_session *s, const float *x, int n, int bits, float *logits)
{
    const struct hparams *hp = &s->model->hp;
    const struct mm mm = { &s->model->output, NULL, logits, hp->n_vocab, 0, bits };

    s->dev->ops->rmsnorm(s->dev, x, s->model->out_norm, hp->norm_eps, hp->n_embd, 1, n, hp->n_embd,
                         s->w.norm, hp->n_embd);
    s->dev->ops->matmul(s->dev, &mm, 1, s->w.norm, n);
}

/* x[n_embd] of a generated token -> its largest logits, by output-head pruning */
static void head_top(struct cb_session *s, const float *x, float *logits)
{
    const struct hparams *hp = &s->model->hp;

    s->dev->ops->rmsnorm(s->dev, x, s->model->out_norm, hp->norm_eps, hp->n_embd, 1, 1, hp->n_embd,
                         s->w.norm, hp->n_embd);
    cb_head_prune_top(s->dev, s->model->head_prune, &s->luck, s->top, s->act_bits, s->w.norm,
                      logits);
}

/* ---- a feed of one session, a step at a time ---- */

/* Asks the caller whether to go on. */
static int report(const struct cb_prefill *how, int64_t done, int64_t total)
{
    if (how && how->progress && how->progress(how->progress_arg, done, total))
        return cb_fail(CB_ECANCEL, "prefill: stopped");
    return CB_OK;
}

/* Hands the logits of tokens logits_from..n-1 to the caller, a batch at a time. */
static int all_logits(struct cb_session *s, int n, const struct cb_prefill *how)
{
    const int n_vocab = s->model->hp.n_vocab, most = min_int(s->chunk, 32);
    float *buf;

    buf = cb_alloc_aligned((size_t)min_int(most, n) * (size_t)n_vocab, sizeof *buf);
    if (!buf)
        return CB_ENOMEM;
    for (int i = how->logits_from; i < n; i += most) {
        const int m = min_int(most, n - i);
        head(s, s->w.x + (size_t)i * (size_t)s->model->hp.n_embd, m, 0, buf);
        for (int j = 0; j < m; j++)
            how->logits(how->logits_arg, i + j, buf + (size_t)j * (size_t)n_vocab);
    }
    free(buf);
    return CB_OK;
}

void cb_forward_begin(struct cb_session *s, const int32_t *tokens, int n)
{
    s->dev->ops->get_rows(s->dev, &s->model->embd, tokens, n, s->w.x);
    cb_model_rope_table(s->model, s->bank.n_seen, n, s->w.cs);
    s->bank.read_bytes = 0;
    s->bank.n_feed = n;
    s->next = (struct step){ 0 };
}

/* After the last layer: the last token's logits. */
static int finish(struct cb_session *s, const struct cb_prefill *how)
{
    const int n = s->bank.n_feed;
    const float *last = s->w.x + (size_t)(n - 1) * (size_t)s->model->hp.n_embd;

    if (how && how->logits)
        TRY(all_logits(s, n, how));
    if (s->bank.decoding && s->top && s->model->head_prune)
        head_top(s, last, s->w.logits);
    else
        head(s, last, 1, s->bank.decoding ? s->act_bits : 16, s->w.logits);
    TRY(cb_device_wait(s->dev));
    s->bank.n_seen += n;
    s->bank.n_feed = 0;
    return CB_OK;
}

int cb_forward_step(struct cb_session *s, const struct cb_prefill *how)
{
    const struct hparams *hp = &s->model->hp;
    const int n = s->bank.n_feed, pos0 = s->bank.n_seen, l = s->next.layer, i = s->next.token;
    const int room = cb_attention_room(&s->attention, l, i);
    const int m = min_int(min_int(s->chunk, n - i), room);
    const struct rows r = { &s,
                            1,
                            m,
                            pos0 + i,
                            pos0 + n,
                            s->w.x + (size_t)i * (size_t)hp->n_embd,
                            s->w.cs + (size_t)i * (size_t)hp->n_rot };

    TRY(layer(&r, l));
    TRY(report(how, ((int64_t)l * n + i + m) / hp->n_layer, n));
    s->next.token += m;
    if (s->next.token < n)
        return 1;
    TRY(cb_attend_end(&s->attention, l));
    s->next = (struct step){ l + 1, 0 };
    return l + 1 < hp->n_layer ? 1 : finish(s, how);
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

int cb_forward_batch(struct cb_session *const *s, const int32_t *tokens, int n)
{
    const struct hparams *hp = &s[0]->model->hp;
    struct work *w = &s[0]->w;
    const size_t n_vocab = (size_t)hp->n_vocab;
    const struct rows r = { s, n, n, 0, 0, w->x, w->cs };

    s[0]->dev->ops->get_rows(s[0]->dev, &s[0]->model->embd, tokens, n, w->x);
    for (int i = 0; i < n; i++) {
        cb_model_rope_table(s[0]->model, s[i]->bank.n_seen, 1,
                            w->cs + (size_t)i * (size_t)hp->n_rot);
        s[i]->bank.read_bytes = 0;
        s[i]->bank.n_feed = 1;
    }
    for (int l = 0; l < hp->n_layer; l++) {
        TRY(layer(&r, l));
        for (int i = 0; i < n; i++)
            TRY(cb_attend_end(&s[i]->attention, l));
    }
    head(s[0], w->x, n, s[0]->act_bits, w->batch_logits);
    TRY(cb_device_wait(s[0]->dev));
    for (int i = 0; i < n; i++) {
        memcpy(s[i]->w.logits, w->batch_logits + (size_t)i * n_vocab, n_vocab * sizeof *w->logits);
        s[i]->bank.n_seen++;
        s[i]->bank.n_feed = 0;
    }
    return CB_OK;
}
