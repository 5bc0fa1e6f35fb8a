/* SPDX-License-Identifier: MIT */
/* layer_share.h - a rank's range of a model's layers. The model of the rank has these layers alone,
 * as if there were no others; the first rank has the embeddings and the output head too. */
#ifndef LAYER_SHARE_H
#define LAYER_SHARE_H

#include "model.h"
#include "ranks/ranks.h"

/* Call when weights are bound, before they are loaded. CB_EUNSUPPORTED: what prevents it */
int cb_layer_share_open(struct cb_model *m, const struct ranks *team);
/* The model has all layers again: call before they are freed. */
void cb_layer_share_close(struct cb_model *m);
/* 1: this rank has the output head */
int cb_layer_share_has_head(const struct cb_model *m);

#endif
