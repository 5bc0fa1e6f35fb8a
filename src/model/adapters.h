/* SPDX-License-Identifier: MIT */
/* adapters.h - LoRA adapters (Hu et al. 2022): low-rank products beside those of a model's
 * matrices. */
#ifndef ADAPTERS_H
#define ADAPTERS_H

#include "model.h"

/* What one adapter does to one matrix W: W x becomes W x + scale * B (A x). Both keep the type that
 * they have in the file. */
struct lora {
    struct weight a, b; /* [rank][n_in], [n_out][rank] */
    float scale;
    struct lora *next; /* of the same matrix, from another adapter */
};

struct adapter {
    struct gguf *gguf;
    float scale; /* the caller's */
    float alpha; /* the file's: a matrix's scale has alpha / rank as a factor; 0: it has not */
    char *bound; /* [n_tensor] 1: belongs to a matrix of the model */
};

/* Opens the adapters in p, which must fit the model, and binds their matrices to the model's, which
 * are bound already. */
int cb_adapters_open(struct cb_model *m, const struct cb_model_params *p);
void cb_adapters_close(struct cb_model *m);

#endif
