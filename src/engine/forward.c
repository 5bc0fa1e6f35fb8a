/* SPDX-License-Identifier: MIT */
/* forward.c - the forward pass, from tokens to logits. Layer by layer: all the chunks of a prompt
 * go through one layer before the next one starts, so a policy can compact a layer as soon as it is
 * done, and the peak is one full layer plus the compacted ones. */
#include <stdlib.h>

#include "attention/attend.h"
#include "attention/sparse_prefill.h"
#include "base/err.h"
#include "base/ints.h"
#include "model/head_prune.h"
#include "session.h"

/* x[n][n_embd], the residual stream of n tokens at positions pos0.., goes through layer l.
 * cs: their [n][n_rot/2][2]. The whole feed ends before position pos_end. */
static int layer_chunk(struct cb_session *s, int l, float *x, const float *cs, int n, int pos0,
                       int pos_end)
{
    const struct hparams *hp = &s->model->hp;
    const struct arch *arch = s->model->arch;
    const struct layer *y = &s->model->layer[l];
    const struct ops *op = s->dev->ops;
    struct device *d = s->dev;
    struct work *w = &s->w;
    const int nq = hp->n_head * hp->hd, nkv = hp->n_kv * hp->hd, stride = nq + 2 * nkv;
    const int act16 = s->bank.decoding; /* one token costs no more so: weights pass but once */
    float *q = w->qkv, *k = w->qkv + nq, *v = w->qkv + nq + nkv; /* columns of one row */

    const struct chunk c = { l, q, k, v, stride, n, pos0, pos_end };

    /* attention */
    op->rmsnorm(d, x, y->attn_norm, hp->norm_eps, hp->n_embd, 1, n, hp->n_embd, w->norm,
                hp->n_embd);
    op->matmul(d,
               (const struct mm[]){ { &y->q, y->q_bias, q, stride, 0, act16 },
                                    { &y->k, y->k_bias, k, stride, 0, act16 },
                                    { &y->v, y->v_bias, v, stride, 0, act16 } },
               3, w->norm, n);
    op->rope(d, arch->rope, q, n, hp->n_head, hp->hd, stride, hp->n_rot, cs);
    op->rope(d, arch->rope, k, n, hp->n_kv, hp->hd, stride, hp->n_rot, cs);
    TRY(cb_attend(&s->attention, &c, w->att));
    op->matmul(d, &(const struct mm){ &y->o, y->o_bias, x, hp->n_embd, 1, act16 }, 1, w->att, n);

    /* feed-forward */
    op->rmsnorm(d, x, y->ffn_norm, hp->norm_eps, hp->n_embd, 1, n, hp->n_embd, w->norm, hp->n_embd);
    op->matmul_glu(d,
                   (const struct mm[]){ { &y->gate, NULL, w->gate, hp->n_ff, 0, act16 },
                                        { &y->up, NULL, w->up, hp->n_ff, 0, act16 } },
                   arch->act, w->norm, n);
    op->matmul(d, &(const struct mm){ &y->down, NULL, x, hp->n_embd, 1, act16 }, 1, w->gate, n);
    return CB_OK;
}

/* x[n][n_embd] -> logits[n][n_vocab]; of a generated token those that are wanted */
static void head(struct cb_session *s, const float *x, int n, int act16, float *logits)
{
    const struct hparams *hp = &s->model->hp;
    const struct ops *op = s->dev->ops;

    op->rmsnorm(s->dev, x, s->model->out_norm, hp->norm_eps, hp->n_embd, 1, n, hp->n_embd,
                s->w.norm, hp->n_embd);
    if (s->bank.decoding && s->top && s->model->head_prune)
        cb_head_prune_top(s->dev, s->model->head_prune, &s->luck, s->top, s->w.norm, logits);
    else
        op->matmul(s->dev,
                   &(const struct mm){ &s->model->output, NULL, logits, hp->n_vocab, 0, act16 }, 1,
                   s->w.norm, n);
}

/* Asks the caller whether to go on. */
static int report(const struct cb_prefill *how, int64_t done, int64_t total)
{
    if (how && how->progress && how->progress(how->progress_arg, done, total))
        return cb_fail(CB_ECANCEL, "prefill: stopped");
    return CB_OK;
}

/* Logits of tokens from.. of a feed of n go to the caller, a batch at a time. */
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

int cb_forward(struct cb_session *s, const int32_t *tokens, int n, const struct cb_prefill *how)
{
    const struct hparams *hp = &s->model->hp;
    struct work *w = &s->w;
    const int pos0 = s->bank.n_seen, half = hp->n_rot / 2;

    s->dev->ops->get_rows(s->dev, &s->model->embd, tokens, n, w->x);
    cb_model_rope_table(s->model, pos0, n, w->cs);
    s->bank.read_bytes = 0;
    s->bank.n_feed = n;
    for (int l = 0; l < hp->n_layer; l++) {
        for (int i = 0, m; i < n; i += m) {
            m = min_int(min_int(s->chunk, n - i), cb_sparse_prefill_room(&s->attention, i));
            TRY(layer_chunk(s, l, w->x + (size_t)i * (size_t)hp->n_embd,
                            w->cs + (size_t)i * (size_t)half * 2, m, pos0 + i, pos0 + n));
            TRY(report(how, ((int64_t)l * n + i + m) / hp->n_layer, n));
        }
        TRY(cb_attend_end(&s->attention, l));
    }
    if (how && how->logits)
        TRY(all_logits(s, n, how));
    head(s, w->x + (size_t)(n - 1) * (size_t)hp->n_embd, 1, 1, w->logits);
    s->bank.n_seen += n;
    s->bank.n_feed = 0;
    return CB_OK;
}
