/* SPDX-License-Identifier: MIT */
/* number_digits.h - the texts of numbers between two bounds that are multiples of a step. */
#ifndef NUMBER_DIGITS_H
#define NUMBER_DIGITS_H

#include "decimal.h"
#include "rules.h"

struct number_bound {
    int there, open; /* open: the bound itself is left out */
    struct decimal d;
};

struct number_form {
    int is_integer;
    struct number_bound low, high;
    struct decimal step; /* 0: none */
};

enum { NUMBER_FEW = 1 }; /* not all multiples are written, but the first ones */

/* -> *x. *some: 1: there is such a number. Without an upper bound numbers have at most 18 digits in
 * front of the point. CB_EUNSUPPORTED; NUMBER_FEW */
int cb_number_digits(struct rules *r, const struct number_form *f, int *x, int *some);

#endif
