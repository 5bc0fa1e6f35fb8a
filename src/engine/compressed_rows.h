/* SPDX-License-Identifier: MIT */
/* compressed_rows.h - queries and stored rows of attention over compressed rows, and the layer's
 * output from the results of its heads. */
#ifndef COMPRESSED_ROWS_H
#define COMPRESSED_ROWS_H

#include "session.h"

/* in[n][n_embd] -> queries and rows in w.qkv, neither normed by head nor rotated; and what entries
 * are made of and scored by (cb_compressed_made). cs[n]: the layer's rotation */
int cb_compressed_rows(struct cb_session *s, const struct layer *y, const float *in,
                       const float *cs, int n, int bits);
/* The last call's rows of struct entry_columns, in the host's memory */
const float *cb_compressed_made(const struct cb_session *s);
/* w.att[n][n_head * hd] -> [n][n_group * group_low], what the output's matrix reads. cs[n]: the
 * rotation of the queries, which is taken back, since values are rotated keys */
const float *cb_compressed_values(struct cb_session *s, const struct layer *y, const float *cs,
                                  int n, int bits);

#endif
