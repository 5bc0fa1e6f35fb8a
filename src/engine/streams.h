/* SPDX-License-Identifier: MIT */
/* streams.h - several residual streams in place of one (hyper-connections). */
#ifndef STREAMS_H
#define STREAMS_H

#include "rows.h"

/* x[n_tok][n_stream * n_embd] -> what a block reads, out[n_tok][n_embd]. Notes how much of the
 * block's result each stream gets. */
int cb_streams_read(struct cb_session *s, const struct stream_mix *mix, const float *x, int n_tok,
                    int bits, float *out);
/* Adds what the block computed, by[n_tok][n_embd], to the streams. */
void cb_streams_add(struct cb_session *s, float *x, const float *by, int n_tok);
/* Adds the embeddings of n-grams of layer l to the streams. */
int cb_streams_ngrams(const struct rows *r, int l, int bits);

#endif
