/* SPDX-License-Identifier: MIT */
/* xielu.h - the activation xIELU, whose parameters are each layer's own. */
#ifndef XIELU_H
#define XIELU_H

#include "model.h"

/* The parameters of layer l, by the keys xielu.*, which have no prefix of the family -> *out, for
 * the caller to free. CB_EFORMAT, CB_ENOMEM */
int cb_xielu_read(const struct cb_model *m, int l, struct xielu **out);
/* x[n] -> the activation of each number */
void cb_xielu(const struct xielu *p, float *x, size_t n);

#endif
