/* SPDX-License-Identifier: MIT */
/* mixer_work.h - work space and states of layers that mix tokens without keys (mixer.h). */
#ifndef MIXER_WORK_H
#define MIXER_WORK_H

#include "bank/states.h"
#include "model/model.h"

/* For a chunk of tokens, in the device's memory; NULL: there are no such layers */
struct mixer_work {
    float *conv;         /* [chunk][n_conv] what the convolution reads and writes */
    float *gate, *out;   /* [chunk][n_head * dv] */
    float *decay, *beta; /* [chunk][n_head or n_head * dk], [chunk][n_head] */
    float *low;          /* [chunk][low rank] */
    /* What layers made of the inputs of a draft's tokens, so that their states can be made once
     * more where the last tokens are taken back: [n_layer][cap_draft][kept_row], the host's; or
     * NULL */
    float *kept;
    size_t kept_row;
    int cap_draft;
};

/* Adds to *bytes. Call cb_mixer_work_close() even after a failure. */
int cb_mixer_work_open(struct mixer_work *w, const struct cb_model *m, int chunk, uint64_t *bytes);
/* Room for drafts of n tokens. Adds to *bytes. CB_ENOMEM */
int cb_mixer_work_draft(struct mixer_work *w, const struct cb_model *m, int n, uint64_t *bytes);
void cb_mixer_work_close(struct mixer_work *w, struct device *d);
/* The states of a session. checkpoint_bytes as in struct cb_session_params. CB_ENOMEM */
int cb_mixer_states_open(struct states *s, const struct cb_model *m, uint64_t checkpoint_bytes);

/* The convolution's past of layer l's n-grams, of each of n_most phases [n_tap - 1][n_stream *
 * n_embd] */
float *cb_mixer_states_ngrams(const struct states *s, const struct cb_model *m, int l);

#endif
