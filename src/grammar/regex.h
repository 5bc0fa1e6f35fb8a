/* SPDX-License-Identifier: MIT */
/* regex.h - regular expressions as expressions of a grammar. */
#ifndef REGEX_H
#define REGEX_H

#include "rules.h"

/* Makes a class of characters, as cb_ex_chars() does. */
typedef int (*regex_chars_fn)(struct rules *r, struct char_range *range, size_t n, int negated);

/* text[len] -> *e. what: for messages; is_part: the expression fits a part of a text unless ^ and $
 * say otherwise; chars: how characters are written in the text */
int cb_regex_expr(const char *text, size_t len, const char *what, int is_part, regex_chars_fn chars,
                  struct rules *r, int *e);

#endif
