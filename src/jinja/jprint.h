/* SPDX-License-Identifier: MIT */
/* jprint.h - values as text: as a template prints them, and as JSON. */
#ifndef JPRINT_H
#define JPRINT_H

#include "jvalue.h"

int cb_jprint(struct jout *o, const struct jv *v); /* Python's str() */
int cb_jto_str(struct jrun *r, const struct jv *v, struct jv *out);
int cb_jrepr(struct jout *o, const struct jv *v); /* Python's repr() */

struct json_form {
    struct jstr item, key; /* separators after an element and after a key */
    struct jstr indent;
    int lines;     /* 1: an element a line */
    int sort_keys; /* 1: dicts in the order of their keys */
    int ascii;     /* 1: other characters are escaped */
};

/* Python's json.dumps. All of the text counts as given from outside, since it is data. */
int cb_jto_json(struct jrun *r, const struct jv *v, const struct json_form *form, struct jv *out);

#endif
