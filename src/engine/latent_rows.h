/* SPDX-License-Identifier: MIT */
/* latent_rows.h - queries and stored rows of latent attention, and the values of what was read. */
#ifndef LATENT_ROWS_H
#define LATENT_ROWS_H

#include "selector_rows.h"

/* in[n][n_embd] -> queries and rows, before rotation, in w.qkv; w.att is work space. index: also
 * that part of what the layer's selector scores by, in w.index (selector_rows.h). expanded: queries
 * are for expanded keys (expanded_latents.h), not for the latents */
void cb_latent_rows(struct cb_session *s, const struct layer *y, const float *in, int n, int bits,
                    enum index_part index, int expanded);
/* What the heads have read, w.att[n][n_head * hd] -> their values [n][n_head * value], in w.qkv */
const float *cb_latent_values(struct cb_session *s, const struct latent *x, int n, int bits);

#endif
