/* SPDX-License-Identifier: MIT */
/* turned_queries.h - queries at other positions than those that they have. */
#ifndef TURNED_QUERIES_H
#define TURNED_QUERIES_H

#include "attention.h"

/* Opens a->turned, a state (state_memory.h); does nothing where nobody turns any. */
int cb_turned_queries_open(struct attention *a);
/* The chunk's queries from `from` on, the first turned back by `shift` positions and each later one
 * by `more` more; [n][n_head * hd], valid until the next call */
const float *cb_turned_queries(struct attention *a, const struct chunk *c, int from, int shift,
                               int more);

#endif
