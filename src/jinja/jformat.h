/* SPDX-License-Identifier: MIT */
/* jformat.h - texts with places for values: Python's % and str.format. */
#ifndef JFORMAT_H
#define JFORMAT_H

#include "native.h"

/* s % values */
int cb_jpercent(struct jrun *r, const struct jstr *s, const struct jargs *a, struct jv *out);
/* s.format(values): {}, {0}, {name}; no format specifications */
int cb_jformat(struct jrun *r, const struct jv *self, const struct jargs *a, struct jv *out);

#endif
