/* SPDX-License-Identifier: MIT */
/* marks.h - special tokens that open and close thoughts and calls: they are no text, but a reply is
 * split by them. */
#ifndef MARKS_H
#define MARKS_H

#include "ctxbank.h"

struct marks {
    int32_t *ids; /* [n] those of thoughts and channels first */
    int n_thought, n;
};

/* The marks that are single special tokens of the model; free ids with free(). */
int cb_marks_find(const cb_model *model, struct marks *out);

#endif
