/* SPDX-License-Identifier: MIT */
/* sample.h - token sequences cut out of texts. */
#ifndef CALIBRATE_SAMPLE_H
#define CALIBRATE_SAMPLE_H

#include "ctxbank.h"

struct sample {
    int32_t *ids; /* [n] */
    int n;
};

struct samples {
    struct sample *at; /* [n] */
    int n;
};

/* `want` samples of at most n_ctx tokens, in turn from each file: runs of a text that lie apart
 * evenly, or prompts of JSON lines (a name that ends in .jsonl), their middle cut out where they
 * are longer. A short file gives fewer. CB_EARG when no sample has `least` tokens. */
int cb_samples_read(const cb_model *m, const char *const *path, int n_path, int want, int n_ctx,
                    int least, struct samples *out);
void cb_samples_free(struct samples *s);

#endif
