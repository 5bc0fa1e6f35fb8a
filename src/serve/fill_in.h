/* SPDX-License-Identifier: MIT */
/* fill_in.h - prompts that ask for the text between two texts. */
#ifndef FILL_IN_H
#define FILL_IN_H

#include "base/json.h"
#include "ctxbank.h"

struct fill_in {
    const char *before, *after;
    const json_t *files; /* [{filename, text}] of the same project, told in front; or NULL */
};

/* The prompt -> ids[*n], which the caller frees, also after a failure. Its tokens are those that
 * the file names, or those that the model families have. CB_EARG: the model has none, or a file is
 * none. */
int cb_fill_in(const cb_model *model, const struct fill_in *what, int32_t **ids, int *n);

#endif
