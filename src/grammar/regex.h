/* SPDX-License-Identifier: MIT */
/* regex.h - regular expressions as they are written, ECMA-262's without flags. */
#ifndef REGEX_H
#define REGEX_H

#include "re.h"

/* text[len] -> *out, without marks. what: for messages; is_part: the expression fits a part of a
 * text unless ^ and $ say otherwise. CB_EARG: it is none; CB_EUNSUPPORTED: something in it, which
 * cb_error() names */
int cb_regex(struct re *x, const char *text, size_t len, const char *what, int is_part, re_id *out);

#endif
