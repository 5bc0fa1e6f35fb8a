/* SPDX-License-Identifier: MIT */
/* weights.h - the tensors of a model. */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "model.h"

/* Binds every tensor of the file to its place, and sets n_vocab and the layers. The file is refused
 * if a tensor is missing, has a wrong shape, or has no place. */
int cb_weights_bind(struct cb_model *m);
void cb_weights_free(struct cb_model *m);
/* Matrix i of a layer, as the device loads them; NULL past the last */
struct weight *cb_weights_at(struct layer *y, int i, int n_expert);

#endif
