/* SPDX-License-Identifier: MIT */
/* stream_work.h - work space of models with several residual streams (streams.h), for a chunk of
 * tokens. */
#ifndef STREAM_WORK_H
#define STREAM_WORK_H

#include "model/model.h"

/* Lies in the device's memory, except `weight` and what is named as the host's. NULL: there is one
 * stream. n is the number of streams. */
struct stream_work {
    float *normed;       /* [chunk][n * n_embd] */
    float *gate, *plane; /* [n][chunk][n_embd], or [chunk][n * n_embd]; with struct stream_blend, a
                            plane is what a block reads, [chunk][n_embd]; with struct altup, what
                            LAuReL adds and what the layer computes, [chunk][n_embd] */
    float *low;          /* [chunk][stream_rank] */
    float *weight; /* [chunk][n] of what the block in progress adds to each stream; with struct
                      stream_blend [chunk][(2 + n) * n] */
    /* of n-grams, where the model has them */
    int32_t *row;     /* [chunk][n_head] of their table, the host's */
    float *embedding; /* [chunk][n_head * dim] */
    float *host[3];   /* [chunk][n * n_embd] keys and streams, [chunk][n_embd] values; the host's.
                         With struct altup the last two, with struct stream_blend the last one,
                         where the device has memory of its own */
};

/* The layer of m that has embeddings of n-grams, or NULL */
const struct ngrams *cb_stream_ngrams(const struct cb_model *m);
/* Adds to *bytes. Call cb_stream_work_close() even after a failure. */
int cb_stream_work_open(struct stream_work *w, const struct cb_model *m, int chunk,
                        uint64_t *bytes);
void cb_stream_work_close(struct stream_work *w, struct device *d);

#endif
