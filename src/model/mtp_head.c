/* SPDX-License-Identifier: MIT */
/* mtp_head.c - binds the block that guesses the token after the next one, and shows it as a model
 * of one layer. */
#include "mtp_head.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/ints.h"
#include "hparams.h"

/* Most rows of the output matrix that a draft looks at. Vocabularies have their frequent tokens
 * first, and 32,768 rows of 248,320 cost less than the head's layer does. */
enum { DRAFT_VOCAB = 1 << 15 };

static int has(const struct binder *b, const char *name)
{
    struct binder look = *b;

    return cb_bind_find(b, cb_bind_in_layer(&look, b->m->hp.n_layer, name)) != NULL;
}

static int optional_matrix(struct binder *b, int l, const char *name, struct weight *w)
{
    return has(b, name) ? cb_bind_matrix(b, cb_bind_in_layer(b, l, name), b->m->hp.n_embd,
                                         b->m->hp.n_vocab, w)
                        : CB_OK;
}

static int bind(struct binder *b, int (*layer)(struct binder *b, int l), struct mtp_head *x)
{
    const int l = b->m->hp.n_layer, ne = b->m->hp.n_embd;

    TRY(cb_hparams_mtp(b->m));
    TRY(layer(b, l));
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "nextn.enorm"), REQUIRED, ne, &x->of_embd));
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "nextn.hnorm"), REQUIRED, ne, &x->of_state));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "nextn.eh_proj.weight"), 2 * ne, ne, &x->join));
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "nextn.shared_head_norm"), OPTIONAL, ne, &x->norm));
    TRY(optional_matrix(b, l, "nextn.embed_tokens.weight", &x->embd));
    return optional_matrix(b, l, "nextn.shared_head_head.weight", &x->output);
}

static void unbind(struct cb_model *m)
{
    struct norm *const norms[] = { &m->mtp->of_embd, &m->mtp->of_state, &m->mtp->norm };

    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        cb_bind_free_norm(norms[i]);
    free(m->mtp);
    m->mtp = NULL;
}

/* Files may leave out some or all of the block. */
static int is_whole(const struct binder *b)
{
    return has(b, "nextn.eh_proj.weight") && has(b, "attn_norm.weight") &&
           has(b, "attn_output.weight");
}

int cb_mtp_bind(struct binder *b, int (*layer)(struct binder *b, int l))
{
    struct cb_model *m = b->m;
    int err;

    if (!m->draft_mtp || m->hp.n_block == m->hp.n_layer || !is_whole(b) ||
        m->arch->norm != NORM_RMS || m->hp.n_stream > 1)
        return CB_OK;
    if (!(m->mtp = cb_calloc(1, sizeof *m->mtp)))
        return CB_ENOMEM;
    err = bind(b, layer, m->mtp);
    if (!err)
        return CB_OK;
    unbind(m);
    if (err == CB_ENOMEM)
        return err;
    cb_model_log(m, CB_LOG_NOTE, "the block that guesses later tokens stays unused: %s",
                 cb_error());
    return CB_OK;
}

struct weight *cb_mtp_weight(struct mtp_head *x, int i)
{
    struct weight *const all[] = { &x->join, &x->output };

    return i < (int)(sizeof all / sizeof *all) ? all[i] : NULL;
}

/* The head as a model. It owns nothing, and is no model that a user could open. */
static struct cb_model *view_of(const struct cb_model *m)
{
    struct mtp_head *x = m->mtp;
    struct cb_model *v = cb_calloc(1, sizeof *v);

    if (!v)
        return NULL;
    v->gguf = m->gguf;
    v->tok = m->tok;
    v->arch = m->arch;
    v->dev = m->dev;
    v->n_threads = m->n_threads;
    v->n_threads_batch = m->n_threads_batch;
    v->hp = m->hp;
    v->hp.n_layer = v->hp.n_block = 1;
    v->hp.n_shared_kv = 0;
    v->hp.selector.n_head = 0; /* its layer reads all tokens */
    v->layer = &m->layer[m->hp.n_layer];
    v->hp.n_kv = v->layer->n_kv;
    v->hp.hd = v->layer->hd;
    v->max_rank = m->max_rank;
    v->embd = x->embd.raw ? x->embd : m->embd;
    v->output = x->output.raw ? x->output : m->output;
    v->output.n_out = min_int(v->output.n_out, DRAFT_VOCAB); /* a prefix of its groups of rows */
    v->out_norm = x->norm.w ? x->norm : m->out_norm;
    v->has_looked = 1;
    v->rows_only = m->rows_only;
    v->small_pages = m->small_pages;
    v->fingerprint = m->fingerprint;
    v->mtp_of = m;
    return v;
}

int cb_mtp_open(struct cb_model *m)
{
    if (!m->mtp)
        return CB_OK;
    m->mtp->view = view_of(m);
    return m->mtp->view ? CB_OK : CB_ENOMEM;
}

void cb_mtp_close(struct cb_model *m)
{
    if (!m->mtp)
        return;
    free(m->mtp->view);
    unbind(m);
}
