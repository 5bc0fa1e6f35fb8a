/* SPDX-License-Identifier: MIT */
/* members.h - what stands after a dot or between brackets. */
#ifndef MEMBERS_H
#define MEMBERS_H

#include "native.h"

/* v.name and v[key] as a template means them -> *out, undefined if there is none */
int cb_jattr(struct jrun *r, const struct jv *v, const struct jstr *name, struct jv *out);
int cb_jitem(struct jrun *r, const struct jv *v, const struct jv *key, struct jv *out);
/* v[from:to:step]; each of at[3] may be NONE */
int cb_jrange(struct jrun *r, const struct jv *v, const struct jv at[3], struct jv *out);
/* The value at a path such as function.name; a number is an index */
int cb_jpath(struct jrun *r, const struct jv *v, const struct jv *path, struct jv *out);
int cb_jdict_items(struct jrun *r, const struct jdict *d, struct jv *list); /* tuples */
int cb_jtuple2(struct jrun *r, const struct jv *a, const struct jv *b, struct jv *out);

#endif
