/* SPDX-License-Identifier: MIT */
/* embedding.h - the embedding of a text, made of the last layer's states of its tokens while they
 * are read as a prompt. */
#ifndef EMBEDDING_H
#define EMBEDDING_H

#include "ctxbank.h"

struct embedding {
    enum cb_pooling pooling;
    int normalize, n_embd;
    int n_tok;   /* states so far */
    double *sum; /* [n_embd] */
};

/* Begin, read a prompt with cb_embedding_prefill(), end. Begin fails with the statuses of
 * cb_session_embed(). free() may follow a failure, and follows the end. */
int cb_embedding_begin(struct embedding *e, const cb_model *model, const struct cb_embedding *how);
struct cb_prefill cb_embedding_prefill(struct embedding *e);
void cb_embedding_end(const struct embedding *e, float *out); /* [n_embd] */
void cb_embedding_free(struct embedding *e);

#endif
