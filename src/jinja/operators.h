/* SPDX-License-Identifier: MIT */
/* operators.h - arithmetic, joining and comparison of values. */
#ifndef OPERATORS_H
#define OPERATORS_H

#include "jvalue.h"

/* op: as in N_BINARY, N_COMPARE and unary '-' of ast.h */
int cb_jbinary(struct jrun *r, int op, const struct jv *a, const struct jv *b, struct jv *out);
int cb_jcompares(struct jrun *r, int op, const struct jv *a, const struct jv *b, int *yes);
int cb_jnegative(struct jrun *r, const struct jv *a, struct jv *out);

#endif
