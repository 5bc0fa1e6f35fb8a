/* SPDX-License-Identifier: MIT */
/* trained_blocks.h - blocks of layers that share keys, in the file of a model that was trained for
 * them (Ma et al. 2024, section 2.2). */
#ifndef TRAINED_BLOCKS_H
#define TRAINED_BLOCKS_H

#include "gguf/gguf.h"

struct trained_blocks {
    int *start;        /* [n_kv][n_layer] first layer of each layer's block; NULL: no such model */
    int sinks, recent; /* tokens that each layer reads with its own keys */
};

/* Reads the keys ctxbank.pod.start, .sinks and .recent. CB_EFORMAT, CB_ENOMEM */
int cb_trained_blocks_read(const struct gguf *g, int n_kv, int n_layer, struct trained_blocks *out);
void cb_trained_blocks_free(struct trained_blocks *b);

#endif
