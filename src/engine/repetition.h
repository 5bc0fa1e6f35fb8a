/* SPDX-License-Identifier: MIT */
/* repetition.h - which tokens would prolong a repetition of the last ones. */
#ifndef REPETITION_H
#define REPETITION_H

#include <stdint.h>

struct repetition;

/* Looks at the last n_last tokens; repetitions do not reach across a token of breaker[n]. */
int cb_repetition_new(int n_last, int n_vocab, const int32_t *breaker, int n,
                      struct repetition **out);
void cb_repetition_free(struct repetition *r); /* NULL is allowed */
int cb_repetition_fork(const struct repetition *from, struct repetition **out); /* *out: a copy */
void cb_repetition_add(struct repetition *r, int32_t token);
/* Calls fn for each token that followed an earlier occurrence of the last n tokens, with the
 * longest n >= 1 */
void cb_repetition_each(struct repetition *r, void (*fn)(void *arg, int32_t token, int n),
                        void *arg);

#endif
