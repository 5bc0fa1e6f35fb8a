/* SPDX-License-Identifier: MIT */
/* layer_pass.h - rows go through one layer. */
#ifndef LAYER_PASS_H
#define LAYER_PASS_H

#include "rows.h"

/* r->x[n_tok] before layer l -> the same after it */
int cb_layer_pass(const struct rows *r, int l);

#endif
