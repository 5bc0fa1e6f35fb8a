/* SPDX-License-Identifier: MIT */
/* assistant_drafter.c - the states of a session's last tokens, and a pass of an assistant. All
 * guesses of a draft are made at one position: each begins with the state that the one before it
 * left. */
#include "assistant_drafter.h"

#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "base/err.h"
#include "base/ints.h"
#include "layer_pass.h"
#include "likeliest.h"
#include "model/assistant.h"
#include "product.h"
#include "rows.h"

/* ---- the states of a session's last tokens ---- */

enum { KEPT = MOST_DRAFT + 1 }; /* tokens that are decoded together, and may be taken back */

struct last_states {
    struct follower f;
    size_t row;   /* n_embd */
    float *state; /* [KEPT][n_embd] of tokens at, at + 1, .., before the model's last norm */
    int at, n;
};

static void take_states(struct follower *f, const float *state, int pos0, int n)
{
    struct last_states *x = (struct last_states *)f;
    const int gone = max_int(n - KEPT, 0), m = n - gone;

    x->n = 0;
    if (!state)
        return;
    memcpy(x->state, state + (size_t)gone * x->row, (size_t)m * x->row * sizeof *state);
    x->at = pos0 + gone;
    x->n = m;
}

static void cut_states(struct follower *f, int n)
{
    struct last_states *x = (struct last_states *)f;

    x->n = max_int(min_int(x->n, n - x->at), 0);
}

static void close_states(struct follower *f)
{
    free(((struct last_states *)f)->state);
    free(f);
}

/* NULL: the session keeps none */
static const struct last_states *states_of(const struct cb_session *s)
{
    return s->follower && s->follower->take == take_states ? (struct last_states *)s->follower
                                                           : NULL;
}

int cb_assistant_follow(struct cb_session *of)
{
    struct last_states *x;

    if (of->follower)
        return CB_OK;
    if (!(x = cb_calloc(1, sizeof *x)))
        return CB_ENOMEM;
    x->f = (struct follower){ take_states, cut_states, close_states };
    x->row = (size_t)of->model->hp.n_embd;
    x->state = cb_alloc_aligned(KEPT * x->row, sizeof *x->state);
    if (!x->state) {
        free(x);
        return CB_ENOMEM;
    }
    of->follower = &x->f;
    return CB_OK;
}

/* ---- which sessions fit ---- */

int cb_assistant_can(const struct cb_session *s, const struct cb_session *of)
{
    const char *name = s->model->arch->name;

    if (of->model->mtp)
        return cb_fail(CB_EUNSUPPORTED, "%s: the model has a head of its own", name);
    if (of->dev->ops->memory)
        return cb_fail(CB_EUNSUPPORTED, "%s reads keys in the host's memory: not on device %s",
                       name, of->dev->name);
    if (strcmp(s->dev->name, of->dev->name) || strcmp(s->dev->isa, of->dev->isa))
        return cb_fail(CB_EUNSUPPORTED, "%s reads keys as device %s has them, and is on another",
                       name, of->dev->name);
    if (of->in_step)
        return cb_fail(CB_EUNSUPPORTED,
                       "%s reads keys of the last layers, which several processes "
                       "share",
                       name);
    if (s->bank.n_ctx < of->bank.n_ctx)
        return cb_fail(CB_EARG, "%s: its context of %d tokens is smaller than the session's %d",
                       name, s->bank.n_ctx, of->bank.n_ctx);
    return cb_attention_keeps_rows(&of->attention)
               ? CB_OK
               : cb_fail(CB_EUNSUPPORTED,
                         "%s reads all keys of the last layers, of which policy %s leaves some out",
                         name, of->policy->m->name);
}

/* ---- guesses ---- */

/* A draft in progress */
struct guess {
    struct cb_session *s;
    const struct cb_session *of;
    int32_t *draft;
    int most, n;
    float *both; /* [2 * n_target] what `join` reads: the last token's embedding, and the state
                    before it, normed */
};

/* x -> the logits, and the state before the next guess */
static void leave(struct guess *g)
{
    struct cb_session *s = g->s;
    const struct assistant *x = s->model->assistant;
    const int ne = s->model->hp.n_embd;
    const struct mm mm[] = {
        { &s->model->output, NULL, s->w.logits, s->model->output.n_out, 0, s->act_bits },
        { &x->post, NULL, g->both + x->n_target, x->n_target, 0, s->act_bits }
    };

    s->dev->ops->rmsnorm(s->dev, s->w.x, s->model->out_norm.w, s->model->hp.norm_eps, ne, 1, 1, ne,
                         s->w.norm, ne);
    cb_product(s, mm, 2, s->w.norm, 1);
}

/* The logits after token id, which is the last one or a guess of this draft -> w.logits */
static int pass(struct guess *g, int32_t id)
{
    struct cb_session *s = g->s;
    const struct cb_model *of = g->of->model;
    const struct assistant *x = s->model->assistant;
    const struct mm join = { &x->join, NULL, s->w.x, s->model->hp.n_embd, 0, s->act_bits };
    const int pos = g->of->bank.n_seen;
    const struct rows r = { .s = &s,
                            .a = &(struct attention *){ &s->attention },
                            .n = 1,
                            .n_tok = 1,
                            .pos0 = pos,
                            .pos_end = pos + 1,
                            .id = &id,
                            .x = s->w.x,
                            .cs = { s->w.cs[0], s->w.cs[1] } };

    s->dev->ops->get_rows(s->dev, &of->embd, &id, 1, g->both);
    if (of->hp.embd_scale != 1)
        s->dev->ops->scale(s->dev, g->both, of->hp.embd_scale, 0, (size_t)x->n_target);
    cb_product(s, &join, 1, g->both, 1);
    for (int l = 0; l < s->model->hp.n_layer; l++)
        TRY(cb_layer_pass(&r, l));
    leave(g);
    return cb_device_wait(s->dev);
}

static int draft(struct guess *g)
{
    struct cb_session *s = g->s;
    const struct last_states *from = states_of(g->of);
    const struct cb_model *of = g->of->model;
    const int pos = g->of->bank.n_seen, ne = of->hp.n_embd;
    int32_t id = g->of->token[pos];

    for (int i = 0; i < ROPE_TABLES; i++)
        if (s->rope[i].inv_freq)
            cb_rope_table(&s->rope[i], pos, 1, s->w.cs[i]);
    s->dev->ops->rmsnorm(s->dev, from->state + (size_t)(from->n - 1) * from->row, of->out_norm.w,
                         of->hp.norm_eps, ne, 1, 1, ne, g->both + ne, ne);
    for (g->n = 0; g->n < g->most; g->n++) {
        TRY(pass(g, id));
        id = cb_likeliest(s->w.logits, min_int(s->model->hp.n_vocab, of->hp.n_vocab), g->n > 0);
        if (id < 0 || cb_token_is_end(of, id))
            break;
        g->draft[g->n] = id;
    }
    return g->n;
}

struct body {
    struct guess *g;
    int status;
};

static void run_body(void *ctx)
{
    struct body *b = ctx;
    b->status = draft(b->g);
}

/* The layers of s read the rows of `of`. */
static int borrow(struct cb_session *s, const struct cb_session *of)
{
    const int n = s->model->hp.n_layer;

    if (!s->lent && !(s->lent = cb_calloc((size_t)n, sizeof *s->lent)))
        return CB_ENOMEM;
    for (int l = 0; l < n; l++)
        s->lent[l] = &of->bank.store[cb_assistant_reads(s->model, l, of->model)];
    s->attention.lent = s->lent;
    return CB_OK;
}

int cb_assistant_guess(struct cb_session *s, const struct cb_session *of, int32_t *draft, int most)
{
    const struct last_states *from = states_of(of);
    struct guess g = { .s = s, .of = of, .draft = draft, .most = most };
    struct body b = { &g, CB_OK };

    if (!from || !from->n || from->at + from->n != of->bank.n_seen)
        return 0;
    TRY(cb_session_work_fit(s, 1));
    g.both = s->w.join;
    TRY(cb_device_lock(s->dev));
    b.status = borrow(s, of);
    if (!b.status) {
        s->bank.decoding = 1;
        s->bank.n_seen = of->bank.n_seen;
        cb_par_limit(s->dev->par, s->model->n_threads);
        cb_par_run(s->dev->par, run_body, &b);
        s->bank.n_seen = 0;
        s->attention.lent = NULL;
    }
    cb_device_unlock(s->dev);
    return b.status;
}
