/* SPDX-License-Identifier: MIT */
/* entry_maker.h - makes rows that stand for several tokens (struct compressor). For readers. */
#ifndef ENTRY_MAKER_H
#define ENTRY_MAKER_H

#include "attention.h"

/* Work space for the entries that a chunk completes */
struct entry_work {
    float *row, *cs; /* [most][widest], [most][n_rot/2][2] */
    size_t bytes;
};

/* In the state's memory; CB_ENOMEM */
int cb_entry_work_open(struct entry_work *w, void *state, const struct cb_model *m, int chunk);

/* n tokens from position pos0 on, each `width` values at value + t * stride and as many logits at
 * logit + t * stride, change the state. The entries that they complete -> w->row[][x->n], normed
 * and rotated at their first token's position; returns how many. y: the layer that entries are for
 */
int cb_entry_make(const struct attention *a, const struct layer *y, const struct compressor *x,
                  const float *value, const float *logit, int stride, int n, int pos0, float *state,
                  struct entry_work *w);

#endif
