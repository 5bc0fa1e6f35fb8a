/* SPDX-License-Identifier: MIT */
/* ffn.h - the feed-forward of a layer: one network, or a mixture of experts. */
#ifndef FFN_H
#define FFN_H

#include "session.h"

/* in[n][n_embd] -> w.gate[n][n_ff], which the caller multiplies by `down` */
void cb_ffn_hidden(struct cb_session *s, const struct ffn *f, const float *in, int n, int bits);
/* in[n][n_embd] -> out[n][n_embd], both in the device's memory: the weighted sum of the experts
 * that each token chooses */
int cb_ffn_mixture(struct cb_session *s, const struct moe *x, const float *in, int n, int bits,
                   float *out);

#endif
