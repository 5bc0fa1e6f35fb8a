/* SPDX-License-Identifier: MIT */
/* attention_block.h - attention of one layer of the forward pass. */
#ifndef ATTENTION_BLOCK_H
#define ATTENTION_BLOCK_H

#include "rows.h"

/* in[n_tok][n_embd] -> w.att[n_tok][n_head * hd], which the heads of layer l have read */
int cb_attention_block(const struct rows *r, int l, const float *in, int bits);
/* What the output's matrix of layer y reads of w.att: gated, or as values of latent or compressed
 * rows */
const float *cb_attention_values(const struct rows *r, const struct layer *y, int bits);

/* Does a session choose the slots of layer l by guessed queries? Then call the second with what the
 * layer before l reads, which goes through l's query matrix. Attention of that layer must be over:
 * the work space of queries is used again. */
int cb_attention_guesses(const struct rows *r, int l);
void cb_attention_guess(const struct rows *r, int l, const float *in);

#endif
