/* SPDX-License-Identifier: MIT */
/* selector.h - the trained selectors of layers. */
#ifndef SELECTOR_H
#define SELECTOR_H

#include "binder.h"

/* The selector of layer l of a family that has them -> y->selector; NULL: the layer has none */
int cb_selector_bind(struct binder *b, int l, struct layer *y);
/* Matrix i; NULL past the last */
struct weight *cb_selector_weight(struct selector *x, int i);
void cb_selector_free(struct selector *x);

#endif
