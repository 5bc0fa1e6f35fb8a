/* SPDX-License-Identifier: MIT */
/* fill_in.h - prompts that ask for the text between two texts, with the model's own tokens. */
#ifndef FILL_IN_H
#define FILL_IN_H

#include "ctxbank.h"

/* The tokens that ask for what stands between the texts -> *ids, which the caller frees, [*n].
 * CB_EARG: the model has no tokens for that. */
int cb_fill_in(const cb_model *model, const char *before, const char *after, int32_t **ids, int *n);

#endif
