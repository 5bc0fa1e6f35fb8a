/* SPDX-License-Identifier: MIT */
/* matcher.h - follows a grammar byte by byte. What may come after the bytes so far is a state, a
 * number; equal states have equal numbers, so that what was found out about one can be kept. */
#ifndef MATCHER_H
#define MATCHER_H

#include "program.h"

struct matcher;

enum { MATCHER_DEAD = 0 }; /* the state after bytes that do not fit */

/* p must stay while the matcher does. */
int cb_matcher_new(const struct program *p, struct matcher **out);
int cb_matcher_fork(const struct matcher *m, struct matcher **out);
void cb_matcher_free(struct matcher *m);

int32_t cb_matcher_state(const struct matcher *m); /* after the bytes so far */
/* The state that follows; CB_EUNSUPPORTED: the grammar is too ambiguous; CB_ENOMEM */
int32_t cb_matcher_next(struct matcher *m, int32_t state, uint8_t byte);
int cb_matcher_may_end(const struct matcher *m, int32_t state); /* 1: the text fits as it is */
/* Makes `state` the present one. Sets *moved if states have been renumbered to save memory: all
 * numbers but cb_matcher_state() are void then. */
int cb_matcher_go(struct matcher *m, int32_t state, int *moved);

#endif
