/* SPDX-License-Identifier: MIT */
/* str_methods.h - what a template can do with a text; filters use it too. */
#ifndef STR_METHODS_H
#define STR_METHODS_H

#include "native.h"

jfn cb_jstr_method(const struct jstr *name);

int cb_jreplace(struct jrun *r, const struct jstr *s, const struct jstr *old, const struct jstr *by,
                int64_t most, struct jv *out);
int cb_jsplit_lines(struct jrun *r, const struct jstr *s, int keep_ends, struct jv *list);
/* Parts of a list with `gap` between; each part must be a text unless `any` */
int cb_jjoin(struct jrun *r, const struct jstr *gap, const struct jlist *l, int any,
             struct jv *out);
/* s between blanks, `width` characters wide; side: -1 the text stands left, 0 centre, 1 right */
int cb_jpad(struct jrun *r, const struct jstr *s, int64_t width, const struct jstr *fill, int side,
            struct jv *out);
#endif
