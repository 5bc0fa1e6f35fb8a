/* SPDX-License-Identifier: MIT */
/* mtp_head.h - the block after a model's last layer that guesses the token after the next one
 * (multi-token prediction, Gloeckle et al. 2024; DeepSeek-V3, section 2.2). For the engine it is a
 * model of one layer, whose residual stream begins with the next token and the state that the
 * model's last layer left:
 *   join [norm(embedding of token t + 1), norm(out_norm(state of token t))]
 */
#ifndef MTP_HEAD_H
#define MTP_HEAD_H

#include "binder.h"

struct mtp_head {
    struct norm of_embd, of_state; /* what `join` reads */
    struct weight join;            /* [n_embd][2 * n_embd] */
    struct weight embd;            /* [n_vocab][n_embd]; raw NULL: the model's own */
    struct norm norm;              /* before the output; w NULL: the model's own */
    struct weight output;          /* [n_vocab][n_embd]; raw NULL: the model's own */
    struct cb_model *view;         /* the head as a model, which owns nothing; or NULL */
};

/* Binds the first block after the last layer -> m->mtp, if drafts are wanted of it and the file has
 * it whole; a block that cannot be used stays unused, and the log says why. layer(b, l) binds what
 * it has in common with layers. */
int cb_mtp_bind(struct binder *b, int (*layer)(struct binder *b, int l));
/* Loads its matrices, after those of the layers, and makes the view. */
int cb_mtp_open(struct cb_model *m);
void cb_mtp_close(struct cb_model *m);
/* Matrix i that is the head's alone, beside those of its layer; NULL past the last */
struct weight *cb_mtp_weight(struct mtp_head *x, int i);

#endif
