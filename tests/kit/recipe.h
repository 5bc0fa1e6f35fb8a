/* SPDX-License-Identifier: MIT */
/* recipe.h - recipes of tiny models of every family, as tests/vectors/make_families.py writes them:
 * metadata, the tensors' names and shapes, and logits after some tokens. The weights come from a
 * generator that this and the script have in common. */
#ifndef RECIPE_H
#define RECIPE_H

#include <jansson.h>

#include "ctxbank.h"
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

/* ---- a long text of the recipe's tokens, over and over in another order ---- */

int32_t cb_recipe_id(const struct recipe *r, int i);
/* Its tokens from..from+n-1 as a prompt; decoded one by one */
void cb_recipe_prompt(const struct recipe *r, cb_session *s, int from, int n);
void cb_recipe_steps(const struct recipe *r, cb_session *s, int from, int n);
/* How far the logits of two sessions are apart, relative to the largest */
double cb_recipe_apart(const struct recipe *r, const cb_session *a, const cb_session *b);

#endif
