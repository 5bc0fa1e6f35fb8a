/* SPDX-License-Identifier: MIT */
/* sample.h - token sequences cut from texts. */
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

/* Reads `want` samples of at most n_ctx tokens, taken from the files in turn. Samples of a text are
 * evenly spaced. Samples of JSON lines (a name that ends in .jsonl) are prompts; longer ones lose
 * their middle. A short file gives fewer samples. CB_EARG when no sample has `least` tokens. */
int cb_samples_read(const cb_model *m, const char *const *path, int n_path, int want, int n_ctx,
                    int least, struct samples *out);
void cb_samples_free(struct samples *s);

#endif
