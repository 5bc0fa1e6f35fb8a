/* SPDX-License-Identifier: MIT */
/* ffn.h - the feed-forward of a layer: one network, or a mixture of experts. */
#ifndef FFN_H
#define FFN_H

#include "session.h"

/* in[n][n_embd] -> w.gate[n][n_ff], which the caller multiplies by `down` */
void cb_ffn_hidden(struct cb_session *s, const struct ffn *f, const float *in, int n, int bits);
/* What the router reads, in[n][n_embd] -> each token's experts and their weights, in w.moe. id[n]:
 * the tokens, where a table says which experts they have; else NULL */
int cb_ffn_route(struct cb_session *s, const struct moe *x, const float *in, const int32_t *id,
                 int n, int bits);
/* in[n][n_embd] -> out[n][n_embd], both in the device's memory: the weighted sum of the experts
 * that cb_ffn_route() chose, and of the shared one */
int cb_ffn_experts(struct cb_session *s, const struct moe *x, const float *in, int n, int bits,
                   float *out);

#endif
