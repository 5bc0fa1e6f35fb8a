/* SPDX-License-Identifier: MIT */
/* recipe.h - recipes of tiny models of every family, as tests/vectors/make_families.py writes them:
 * metadata, the tensors' names and shapes, and logits after some tokens. The weights come from a
 * generator that this and the script have in common. */
#ifndef RECIPE_H
#define RECIPE_H

#include <jansson.h>

#include "gguf_make.h"

enum { RECIPE_TOKENS = 64 };

struct recipe {
    json_t *root, *after, *logits; /* the tokens after which it has logits [n_vocab] */
    int32_t ids[RECIPE_TOKENS];
    int n, n_vocab, n_ctx;
};

const char *cb_recipe_folder(void);
/* Opens a file of that folder; fails the test if it cannot be read. */
void cb_recipe_open(struct recipe *r, const char *name);
void cb_recipe_make(const struct recipe *r, struct gguf_make *m);
void cb_recipe_close(struct recipe *r);

#endif
