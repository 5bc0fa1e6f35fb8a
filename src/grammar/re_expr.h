/* SPDX-License-Identifier: MIT */
/* re_expr.h - regular expressions as expressions of a grammar. */
#ifndef RE_EXPR_H
#define RE_EXPR_H

#include "re.h"

/* Makes a class of characters, as cb_ex_chars() does. */
typedef int (*re_chars_fn)(struct rules *r, struct char_range *range, size_t n, int negated);

/* Node a, without marks -> *e. As it is written, or, with "and" or "not" in it, as the states of
 * its automaton. chars: how characters are written in the text. CB_EUNSUPPORTED: too many states */
int cb_re_expr(struct re *x, re_id a, re_chars_fn chars, size_t most_states, struct rules *r,
               int *e);

#endif
