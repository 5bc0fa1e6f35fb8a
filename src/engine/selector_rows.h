/* SPDX-License-Identifier: MIT */
/* selector_rows.h - what trained selectors score by, of the tokens that go through a layer. */
#ifndef SELECTOR_ROWS_H
#define SELECTOR_ROWS_H

#include "session.h"

/* 1: queries of layer l read in session s what its selector names, and the layer scores itself */
int cb_selector_scores(const struct cb_session *s, int l);
/* What a layer needs of its tokens: where every query sees at most top_k tokens, keys alone */
enum index_part { INDEX_NOTHING, INDEX_KEYS, INDEX_ALL };

/* in[n][n_embd] -> w.index, normed and not rotated. Latent attention has left the queries' own
 * projection in w.latent. */
void cb_selector_rows(struct cb_session *s, const struct layer *y, const float *in, int n, int bits,
                      enum index_part part);
/* w.index[n], rotated, goes to the host's memory. */
void cb_selector_rows_home(struct cb_session *s, int n);
/* The rows of w.index from row i on; far: as they are in the device's memory */
struct index_rows cb_selector_rows_at(const struct cb_session *s, int i, int far);

#endif
