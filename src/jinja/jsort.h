/* SPDX-License-Identifier: MIT */
/* jsort.h - stable sorting of values. */
#ifndef JSORT_H
#define JSORT_H

#include "jvalue.h"

/* at[n] sorted by key[n], both in place; equal keys keep their order, also when reversed. */
int cb_jsort(struct jrun *r, struct jv *at, struct jv *key, size_t n, int reverse);
/* The pairs of d in the order of their keys -> *out[d->n] */
int cb_jsort_pairs(struct jrun *r, const struct jdict *d, const struct jpair **out);
/* A text in small letters for comparison without case; other values as they are */
int cb_jlower(struct jrun *r, const struct jv *v, struct jv *out);

#endif
