/* SPDX-License-Identifier: MIT */
/* mtp_drafter.c - a prompt's states go through the head's layer at once; those of generated tokens
 * wait until a draft is wanted. Later tokens of a draft are guessed from the head's own state in
 * place of the model's, and these rows are dropped again. */
#include "mtp_drafter.h"

#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "base/err.h"
#include "base/ints.h"
#include "likeliest.h"
#include "model/mtp_head.h"
#include "product.h"

static size_t row(const struct mtp_drafter *x)
{
    return (size_t)x->of->model->hp.n_embd;
}

uint64_t cb_mtp_drafter_bytes(const struct mtp_drafter *x)
{
    return MTP_STATES * row(x) * sizeof *x->state;
}

/* ---- rows ---- */

/* The head holds no row; the next one is that of token `at`. */
static void restart(struct mtp_drafter *x, int at)
{
    cb_session_forget(x->s);
    x->base = x->at = at;
    x->n = 0;
}

/* The last n rows of the head go; all of them where its window has dropped others meanwhile. */
static void drop(struct mtp_drafter *x, int n)
{
    const int left = x->s->bank.n_seen - n;

    if (n <= 0)
        return;
    if (left <= 0 || cb_attention_uncut(&x->s->attention, left) ||
        cb_attend_take_back(&x->s->attention, left))
        cb_session_forget(x->s);
    else
        cb_attention_cut(&x->s->attention, left);
}

/* Rows of n states, at most a chunk, each with the token after it. The last ones of a prompt are
 * many, those before a draft few. */
static int feed(struct mtp_drafter *x, const int32_t *token, const float *state,
                const struct norm *norm, int n)
{
    struct cb_session *s = x->s;

    if (n > s->n_ctx - s->bank.n_seen)
        return cb_fail(CB_EFULL, "the head's context is full");
    s->bank.decoding = n == 1;
    s->mtp_in = (struct mtp_states){ state, norm };
    TRY(cb_session_note_tokens(s, token, n));
    TRY(cb_forward(s, token, n, NULL));
    return cb_session_check_files(s);
}

/* The same for states of the model, in pieces */
static int feed_all(struct mtp_drafter *x, const int32_t *token, const float *state, int n)
{
    for (int i = 0, m; i < n; i += m) {
        m = min_int(x->s->chunk, n - i);
        TRY(feed(x, token + i, state + (size_t)i * row(x), &x->of->model->out_norm, m));
    }
    return CB_OK;
}

/* The waiting states of tokens whose next token is known go through the head; `known` tokens are.
 */
static int flush(struct mtp_drafter *x, int known)
{
    const int n = min_int(x->n, known - 1 - x->at);

    if (n < 1)
        return CB_OK;
    TRY(feed_all(x, x->of->token + x->at + 1, x->state, n));
    memmove(x->state, x->state + (size_t)n * row(x), (size_t)(x->n - n) * row(x) * sizeof(float));
    x->at += n;
    x->n -= n;
    return CB_OK;
}

/* All but the last state of n more tokens, whose ids are noted, follow the waiting ones. */
static int take_many(struct mtp_drafter *x, const float *state, int n)
{
    const int pos0 = x->at + x->n;

    TRY(flush(x, pos0 + 1));
    TRY(feed_all(x, x->of->token + pos0 + 1, state, n - 1));
    x->at += n - 1;
    memcpy(x->state, state + (size_t)(n - 1) * row(x), row(x) * sizeof *state);
    x->n = 1;
    return CB_OK;
}

static void fail(struct mtp_drafter *x)
{
    cb_model_log(x->of->model, CB_LOG_NOTE, "no more drafts by the model's own head: %s",
                 cb_error());
    restart(x, INT32_MAX / 2); /* no token is there */
}

static void take_states(struct follower *f, const float *state, int pos0, int n)
{
    struct mtp_drafter *x = (struct mtp_drafter *)f;
    int err;

    if (!state || pos0 != x->at + x->n)
        restart(x, state ? pos0 : pos0 + n);
    if (!state)
        return;
    if (n <= MTP_STATES - x->n) {
        memcpy(x->state + (size_t)x->n * row(x), state, (size_t)n * row(x) * sizeof *state);
        x->n += n;
        return;
    }
    err = take_many(x, state, n);
    if (err)
        fail(x);
}

static void cut(struct follower *f, int n)
{
    struct mtp_drafter *x = (struct mtp_drafter *)f;
    int left;

    if (n > x->at) {
        x->n = min_int(x->n, n - x->at);
        return;
    }
    /* the row of the last token that stays was made with the next one, and its state is gone */
    left = max_int(n - 1 - x->base, 0);
    drop(x, max_int(x->s->bank.n_seen - left, 0));
    x->at = n;
    x->base = n - x->s->bank.n_seen;
    x->n = 0;
}

static void close_follower(struct follower *f)
{
    struct mtp_drafter *x = (struct mtp_drafter *)f;

    cb_session_close(x->s);
    free(x->state);
    free(x);
}

static int open(struct mtp_drafter *x)
{
    const struct cb_session *of = x->of;
    const struct cb_session_params p = {
        .n_ctx = of->n_ctx, .chunk = of->chunk, .act_bits = of->act_bits, .policy = "full"
    };

    x->state = cb_alloc_aligned(MTP_STATES * row(x), sizeof *x->state);
    if (!x->state)
        return CB_ENOMEM;
    TRY(cb_session_open(of->model->mtp->view, &p, &x->s));
    TRY(cb_session_work_fit(x->s, max_int(x->s->chunk, MTP_STATES)));
    TRY(cb_attention_fit_draft(&x->s->attention, MOST_DRAFT));
    x->base = x->at = of->bank.n_seen;
    return CB_OK;
}

int cb_mtp_drafter_open(struct cb_session *of)
{
    struct mtp_drafter *x;
    int err;

    if (of->follower || !cb_session_has_head(of))
        return CB_OK;
    if (!(x = cb_calloc(1, sizeof *x)))
        return CB_ENOMEM;
    x->f = (struct follower){ take_states, cut, close_follower };
    x->of = of;
    err = open(x);
    if (err)
        close_follower(&x->f);
    else
        of->follower = &x->f;
    return err;
}

/* ---- drafts ---- */

/* The likeliest token; -1: unsure, or one that ends the text */
static int32_t likeliest(struct mtp_drafter *x, int sure)
{
    struct cb_session *s = x->s;
    const struct weight *out = &s->model->output;
    const struct mm mm = { out, NULL, s->w.logits, out->n_out, 0, s->act_bits };
    const float *last = s->w.x + (size_t)(s->next.n_tok - 1) * row(x);
    int32_t id;

    s->dev->ops->rmsnorm(s->dev, last, s->model->out_norm.w, s->model->hp.norm_eps,
                         s->model->hp.n_embd, 1, 1, s->model->hp.n_embd, s->w.norm,
                         s->model->hp.n_embd);
    cb_product(s, &mm, 1, s->w.norm, 1);
    id = cb_likeliest(s->w.logits, out->n_out, sure);
    return id < 0 || cb_token_is_end(x->of->model, id) ? -1 : id;
}

static int guess(struct mtp_drafter *x, int most)
{
    TRY(flush(x, x->of->bank.n_seen + 1));
    cb_draft_rows_begin(&x->s->attention, most, 0);
    for (int i = 0; i < most; i++) {
        const size_t last = (size_t)(x->s->next.n_tok - 1) * row(x);
        if (i) {
            memcpy(x->state, x->s->w.x + last, row(x) * sizeof *x->state);
            TRY(feed(x, &x->draft[i - 1], x->state, &x->s->model->out_norm, 1));
        }
        x->draft[i] = likeliest(x, i > 0);
        if (x->draft[i] < 0)
            return i;
    }
    return most;
}

int cb_mtp_drafter_guess(struct mtp_drafter *x, int most)
{
    int n, rows;

    most = min_int(most, x->s->n_ctx - x->s->bank.n_seen - x->n - 1);
    if (most < 1 || !x->n || x->at + x->n != x->of->bank.n_seen)
        return 0;
    n = guess(x, most);
    if (n < 0) {
        fail(x);
        return 0;
    }
    rows = x->s->bank.n_seen - (x->at - x->base); /* of guessed states */
    drop(x, rows);
    return n;
}
