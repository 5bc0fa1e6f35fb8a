/* SPDX-License-Identifier: MIT */
/* headed.h - tiny models whose files have a head for later tokens. */
#ifndef HEADED_H
#define HEADED_H

#include "ctxbank.h"
#include "recipe.h"

/* HEADED families with such heads: delta nets, experts, latent attention */
enum { HEADED = 5, HEADED_IDS = 300, HEADED_CTX = 512 };

/* What is done to the file: nothing; layers add nothing; and the head sees the next token alone */
enum { HEAD_RANDOM, HEAD_STILL, HEAD_AGREES };

struct headed {
    struct recipe recipe;
    char file[64];
    cb_model *m; /* after cb_headed_open() */
    int32_t ids[HEADED_IDS];
};

void cb_headed_make(struct headed *h, int i, int what); /* the file of family i < HEADED */
void cb_headed_open(struct headed *h, int draft);       /* draft: most tokens of a draft */
/* Both, and the model has its head. */
void cb_headed_new(struct headed *h, int i, int what, int draft);
void cb_headed_close(struct headed *h); /* the model, and the file goes */
cb_session *cb_headed_session(const struct headed *h, const char *policy, int chunk);
/* What the head guesses after token `id`, without decoding it -> draft of the drafter */
int cb_headed_guess(cb_session *s, int32_t id, int most);

/* ---- changes of a recipe ---- */

void cb_headed_add(const struct recipe *r); /* gives it a head, in the block after its layers */
json_t *cb_headed_key(const struct recipe *r, const char *name); /* NULL: it has no such key */
/* Removes the tensors of block l, or those that end so. */
void cb_headed_remove(const struct recipe *r, int l, const char *end);
/* The tensors whose names end so have the same number everywhere, their mean. */
void cb_headed_level(const struct recipe *r, const char *end);
void cb_headed_row(const struct recipe *r, int l, const char *name, int a, int b, double mean,
                   double width);

#endif
