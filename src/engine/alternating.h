/* SPDX-License-Identifier: MIT */
/* alternating.h - residual streams of which one goes through a layer (struct altup). Streams are
 * x[n_tok][n_stream][n_embd]; n_tok is at most a chunk. */
#ifndef ALTERNATING_H
#define ALTERNATING_H

#include "session.h"

/* Embeddings embd[n_tok][n_embd] -> the streams before the first layer */
void cb_alternating_begin(struct cb_session *s, const float *embd, int n_tok, int bits, float *x);
/* Before layer l: predicts the streams -> w.streams.plane[n_tok][n_embd], the active one */
int cb_alternating_predict(struct cb_session *s, const struct altup *y, float *x, int n_tok,
                           int bits);
/* in[n_tok][n_embd], what attention reads -> w.streams.gate[n_tok][n_embd], which stands beside
 * what attention gives */
void cb_alternating_beside(struct cb_session *s, const struct altup *y, const float *in, int n_tok,
                           int bits);
/* After attention, the same is added to the plane. */
void cb_alternating_join(struct cb_session *s, int n_tok);
/* After the layer, whose result is the plane: corrects the streams. The plane is then the active
 * one as struct layer_input reads it. */
int cb_alternating_correct(struct cb_session *s, const struct altup *y, float *x, int n_tok,
                           int bits);
/* Adds w.add[n_tok][n_embd], what the layer is told of the tokens, to all streams but the first. */
int cb_alternating_tell(struct cb_session *s, float *x, int n_tok);
/* The streams after the last layer -> out[n_tok][n_embd] */
int cb_alternating_end(struct cb_session *s, const float *x, int n_tok, int bits, float *out);

#endif
