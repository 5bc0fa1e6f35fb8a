/* SPDX-License-Identifier: MIT */
/* layer_input.h - what each layer is told of a token beside the residual stream. */
#ifndef LAYER_INPUT_H
#define LAYER_INPUT_H

#include "binder.h"

int cb_layer_input_bind(struct binder *b, int l, struct layer *y); /* -> y->input */
void cb_layer_input_free(struct layer_input *x);                   /* NULL is allowed */

#endif
