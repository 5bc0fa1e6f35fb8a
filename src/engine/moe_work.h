/* SPDX-License-Identifier: MIT */
/* moe_work.h - work space of a mixture of experts, for a chunk of tokens. */
#ifndef MOE_WORK_H
#define MOE_WORK_H

#include "model/model.h"

struct moe_work {
    float *logit;    /* [chunk][n_expert] */
    float *weight;   /* [chunk][n_expert] of the chosen experts; 0: not chosen */
    float *in, *out; /* [chunk][n_embd or n_latent] of the tokens of one expert; like `latent`, in
                        the device's memory */
    float *zero;     /* [chunk][n_embd or n_latent] */
    float *latent;   /* [2][chunk][n_latent] what experts read, and their sum; or NULL */
    int *token;      /* [chunk] the tokens of one expert */
};

/* Adds to *bytes. Call cb_moe_work_close() even after a failure. */
int cb_moe_work_open(struct moe_work *w, struct device *d, const struct hparams *hp, int chunk,
                     uint64_t *bytes);
void cb_moe_work_close(struct moe_work *w, struct device *d);

#endif
