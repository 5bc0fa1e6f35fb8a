/* SPDX-License-Identifier: MIT */
/* constraint.h - which tokens a grammar allows next, in one sampler's text. */
#ifndef CONSTRAINT_H
#define CONSTRAINT_H

#include "program.h"
#include "token_trie.h"

struct constraint;

/* p and t must stay while the constraint does. */
int cb_constraint_new(const struct program *p, const struct token_trie *t, struct constraint **out);
int cb_constraint_fork(const struct constraint *from, struct constraint **out);
void cb_constraint_free(struct constraint *c); /* NULL is allowed */

/* The allowed tokens, bit id % 64 of (*mask)[id / 64], valid until the next call; returns how many
 * there are. Tokens that end a turn are allowed exactly where the text may end. CB_EUNSUPPORTED:
 * none is, or the grammar is too ambiguous; CB_EARG: the text so far does not fit; CB_ENOMEM */
int cb_constraint_mask(struct constraint *c, const uint64_t **mask);
/* 1: token id is allowed next; 0: it is not. Quicker than a mask for a few tokens */
int cb_constraint_allows(struct constraint *c, int32_t id);
/* The text continues with token id. A failure is remembered for the next call above. */
void cb_constraint_accept(struct constraint *c, int32_t id);

#endif
