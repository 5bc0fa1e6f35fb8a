/* SPDX-License-Identifier: MIT */
/* experts.h - a layer's mixture of experts. */
#ifndef EXPERTS_H
#define EXPERTS_H

#include "binder.h"

int cb_experts_bind(struct binder *b, int l, struct layer *y); /* -> y->moe */
/* The norms of a layer whose dense network works beside its experts -> x->beside */
int cb_experts_beside(struct binder *b, int l, struct moe *x);
void cb_experts_free(struct moe *x, int n_expert); /* NULL is allowed */

#endif
