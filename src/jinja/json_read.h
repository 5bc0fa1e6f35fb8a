/* SPDX-License-Identifier: MIT */
/* json_read.h - JSON text to values. */
#ifndef JSON_READ_H
#define JSON_READ_H

#include "jvalue.h"

/* s[n] is one JSON value. Its texts count as given from outside. */
int cb_jread(struct jrun *r, const char *s, size_t n, struct jv *out);

#endif
