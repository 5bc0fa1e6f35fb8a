/* SPDX-License-Identifier: MIT */
/* jinja.h - chat templates in the language Jinja, as models carry them.
 *
 * What the templates of models use is there: loops, conditions, set, macros, namespaces, filters,
 * tests, the methods of texts, lists and dicts. What reads other templates (include, import,
 * extends) is not. A template cannot reach anything but the values that it is given, and is stopped
 * at the limits. */
#ifndef JINJA_H
#define JINJA_H

#include "jvalue.h"

struct node;

/* Parses src[n] in r's memory. *out may be NULL: an empty template */
int cb_jinja_parse(struct jrun *r, const char *src, size_t n, const struct node **out);
/* What the template writes with the variables of the dict `given` -> *out, in r's memory */
int cb_jinja_render(struct jrun *r, const struct node *t, const struct jv *given, struct jstr *out);

#endif
