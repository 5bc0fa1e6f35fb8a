/* SPDX-License-Identifier: MIT */
/* health.h - numbers that are not finite: in logits and states, and the weight that made them. */
#ifndef HEALTH_H
#define HEALTH_H

#include <stddef.h>

struct cb_model;

int cb_all_finite(const float *x, size_t n);
/* The same, but for -infinity, which stands for logits that were left out */
int cb_none_absurd(const float *x, size_t n);
/* Fails with CB_EFORMAT and the name of the first tensor with a number that is not finite; if all
 * weights are finite, with that. Reads the whole file. */
int cb_model_not_finite(const struct cb_model *m);

#endif
